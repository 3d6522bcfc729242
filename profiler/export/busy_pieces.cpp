#include "profiler/export/busy_pieces.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

class Pieces {
 public:
  explicit Pieces(const Timeline& timeline) : timeline_(timeline) {}

  void add(int32_t slice) {
    close_until(slice_at(slice).begin_ns);
    advance(slice_at(slice).begin_ns);
    open_.push_back(slice);
  }

  std::vector<BusyPiece> take() {
    while (!open_.empty()) close_innermost();
    return std::move(pieces_);
  }

 private:
  const Slice& slice_at(int32_t slice) const { return timeline_.slices[static_cast<std::size_t>(slice)]; }

  void close_innermost() {
    advance(slice_at(open_.back()).end_ns);
    open_.pop_back();
  }
  void close_until(int64_t ns) {
    while (!open_.empty() && slice_at(open_.back()).end_ns <= ns) close_innermost();
  }

  /// The operator whose time it is; -1: nobody's. What an operator does beside operators inside it is its own.
  int32_t owner() const {
    for (auto slice = open_.rbegin(); slice != open_.rend(); ++slice) {
      const ZoneKind kind = kind_of(slice_at(*slice));
      if (kind == ZoneKind::kWait) return -1;
      if (kind == ZoneKind::kCompute) return *slice;
    }
    return -1;
  }

  void advance(int64_t to_ns) {
    const int32_t slice = owner();
    if (slice >= 0 && to_ns > at_ns_) {
      const bool continues = !pieces_.empty() && pieces_.back().slice == slice && pieces_.back().end_ns == at_ns_;
      if (continues) {
        pieces_.back().end_ns = to_ns;
      } else {
        pieces_.push_back({slice, at_ns_, to_ns});
      }
    }
    at_ns_ = std::max(at_ns_, to_ns);
  }

  const Timeline& timeline_;
  std::vector<int32_t> open_;  // outermost first
  std::vector<BusyPiece> pieces_;
  int64_t at_ns_ = 0;
};

}  // namespace

std::vector<BusyPiece> find_busy_pieces(const Timeline& timeline, int32_t lane) {
  Pieces pieces(timeline);
  const auto [first, last] = timeline.lane_range(lane);
  for (int32_t i = first; i < last; ++i) pieces.add(i);
  return pieces.take();
}

int32_t find_main_lane(const Timeline& timeline, int32_t rank) {
  int32_t main_lane = -1;
  int64_t most = 0;
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    if (timeline.lanes[l].rank != rank) continue;
    const auto [first, last] = timeline.lane_range(static_cast<int32_t>(l));
    const auto begin = timeline.slices.begin() + first, end = timeline.slices.begin() + last;
    const int64_t count = std::count_if(begin, end, [](const Slice& slice) { return kind_of(slice) == ZoneKind::kCompute; });
    if (count <= most) continue;
    most = count;
    main_lane = static_cast<int32_t>(l);
  }
  return main_lane;
}

}  // namespace ferry
