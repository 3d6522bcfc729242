#include "profiler/report/critical_path/path_piece.h"

#include "profiler/report/timeline/step_slices.h"

namespace ferry {

const char* path_kind_name(PathKind kind) {
  constexpr const char* kNames[] = {"compute", "host", "message", "wait", "not running"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string path_piece_name(const Timeline& timeline, const PathPiece& piece) {
  if (piece.kind == PathKind::kNotRunning) return "not running";
  if (piece.kind == PathKind::kMessage) {
    const Message& message = timeline.messages[static_cast<std::size_t>(piece.message)];
    return std::string(message.is_dispatch ? "rows " : "reply ") + (message.source == piece.rank ? "to" : "from") + " rank " +
           std::to_string(path_piece_peer(timeline, piece));
  }
  const Zone zone = piece.slice < 0 ? Zone::kStep : timeline.slices[static_cast<std::size_t>(piece.slice)].zone;
  return zone == Zone::kStep ? "not recorded" : zone_info(zone).name;
}

int32_t path_piece_peer(const Timeline& timeline, const PathPiece& piece) {
  if (piece.kind == PathKind::kMessage) {
    const Message& message = timeline.messages[static_cast<std::size_t>(piece.message)];
    return message.source == piece.rank ? message.target : message.source;
  }
  if (piece.kind != PathKind::kWait || piece.slice < 0) return -1;
  const Slice& slice = timeline.slices[static_cast<std::size_t>(piece.slice)];
  return is_peer_wait(slice.zone) ? static_cast<int32_t>(slice.b) : -1;
}

}  // namespace ferry
