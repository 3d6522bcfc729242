#include "profiler/report/critical_path/critical_path.h"

#include <algorithm>
#include <map>

#include "profiler/report/critical_path/arrivals.h"
#include "profiler/report/critical_path/rank_work.h"
#include "profiler/report/lost_time/lost_time.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

PathKind path_kind(const Slice& slice) {
  switch (kind_of(slice)) {
    case ZoneKind::kCompute: return PathKind::kCompute;
    case ZoneKind::kWait: return PathKind::kWait;
    default: return PathKind::kHost;
  }
}

/// Walks backwards through one step after the other.
class PathFinder {
 public:
  explicit PathFinder(const ReportInput& input)
      : timeline_(input.timeline),
        stops_(find_stops(input)),
        arrivals_(input, stops_),
        coordinators_(find_coordinators(timeline_)),
        followed_in_(timeline_.messages.size(), -1) {
    for (std::size_t r = 0; r < input.capture.ranks.size(); ++r) works_.emplace_back(timeline_, static_cast<int32_t>(r));
  }

  std::vector<PathPiece> find() {
    for (std::size_t s = 0; s < timeline_.steps.size(); ++s) walk(static_cast<int32_t>(s));
    return std::move(path_);
  }

 private:
  void walk(int32_t step);
  void follow(const RankWork::Stretch& stretch);
  void go_back(PathPiece piece, int64_t to_ns);
  void go_back_within(PathPiece piece, int64_t to_ns, const IntervalSet& stops, int32_t stopped);
  void add(PathPiece piece, int64_t to_ns);

  const Timeline& timeline_;
  const std::vector<IntervalSet> stops_;  // by rank
  const Arrivals arrivals_;
  const std::vector<int32_t> coordinators_;  // rank, by step
  std::vector<RankWork> works_;              // by rank
  std::vector<int32_t> followed_in_;         // [num_messages] the step in which the path went through it last
  std::vector<PathPiece> path_;

  // Where the walk is.
  int32_t step_ = 0;
  int32_t rank_ = 0;
  int64_t begin_ns_ = 0;  // of the step
  int64_t at_ns_ = 0;
};

void PathFinder::walk(int32_t step) {
  const StepInfo& info = timeline_.steps[static_cast<std::size_t>(step)];
  const std::size_t first = path_.size();
  step_ = step;
  begin_ns_ = info.begin_ns;
  at_ns_ = info.end_ns;
  rank_ = coordinators_[static_cast<std::size_t>(step)];
  while (at_ns_ > begin_ns_) {
    const RankWork::Stretch stretch = works_.at(static_cast<std::size_t>(rank_)).before(at_ns_);
    if (stretch.slice >= 0 && is_peer_wait(timeline_.slices[static_cast<std::size_t>(stretch.slice)].zone)) {
      follow(stretch);
      continue;
    }
    const PathKind kind =
        stretch.slice < 0 ? PathKind::kHost : path_kind(timeline_.slices[static_cast<std::size_t>(stretch.slice)]);
    go_back({.kind = kind, .slice = stretch.slice}, stretch.begin_ns);
  }
  std::reverse(path_.begin() + static_cast<std::ptrdiff_t>(first), path_.end());
}

/// Through the message that ended a wait, unless that was there before the wait began: then the rank itself was late. Each
/// message is followed once a step, so clocks that are off cannot lead in circles.
void PathFinder::follow(const RankWork::Stretch& stretch) {
  const Slice& wait = timeline_.slices[static_cast<std::size_t>(stretch.slice)];
  const PathPiece waiting{.kind = PathKind::kWait, .slice = stretch.slice};
  const int32_t m = arrivals_.message_of(wait);
  if (m < 0) return go_back(waiting, stretch.begin_ns);
  const Message& message = timeline_.messages[static_cast<std::size_t>(m)];
  const PathPiece flight{.kind = PathKind::kMessage, .slice = stretch.slice, .message = m};
  if (wait.zone == Zone::kWaitSend) return go_back(flight, stretch.begin_ns);
  const int64_t arrival_ns = arrivals_.arrival_ns(wait, message);
  int32_t& followed_in = followed_in_[static_cast<std::size_t>(m)];
  if (followed_in == step_ || arrival_ns <= stretch.begin_ns) return go_back(waiting, stretch.begin_ns);
  followed_in = step_;
  go_back(waiting, arrival_ns);
  go_back(flight, message.send_begin_ns);
  rank_ = message.source;
}

/// To an earlier moment, but not beyond the step's begin. What the rank (of a message, either end) missed because it did not
/// run is told apart.
void PathFinder::go_back(PathPiece piece, int64_t to_ns) {
  piece.step = step_;
  piece.rank = rank_;
  to_ns = std::max(to_ns, begin_ns_);
  go_back_within(piece, to_ns, stops_.at(static_cast<std::size_t>(rank_)), rank_);
}

void PathFinder::go_back_within(PathPiece piece, int64_t to_ns, const IntervalSet& stops, int32_t stopped) {
  auto stop = std::partition_point(stops.begin(), stops.end(), [&](const Interval& s) { return s.begin < at_ns_; });
  const auto go_on = [&](int64_t until_ns) {
    if (piece.kind != PathKind::kMessage || until_ns >= at_ns_) return add(piece, until_ns);
    const Message& message = timeline_.messages[static_cast<std::size_t>(piece.message)];
    const int32_t other = message.source == rank_ ? message.target : message.source;
    if (other == stopped) return add(piece, until_ns);
    go_back_within(piece, until_ns, stops_.at(static_cast<std::size_t>(other)), other);
  };
  while (at_ns_ > to_ns && stop != stops.begin() && std::prev(stop)->end > to_ns) {
    --stop;
    go_on(std::max(stop->end, to_ns));
    PathPiece missed = piece;
    missed.kind = PathKind::kNotRunning;
    missed.rank = stopped;
    missed.message = -1;
    add(missed, std::max(stop->begin, to_ns));
  }
  go_on(to_ns);
}

void PathFinder::add(PathPiece piece, int64_t to_ns) {
  if (to_ns >= at_ns_) return;
  piece.begin_ns = to_ns;
  piece.end_ns = at_ns_;
  at_ns_ = to_ns;
  path_.push_back(piece);
}

}  // namespace

std::vector<PathPiece> find_critical_path(const ReportInput& input) { return PathFinder(input).find(); }

std::vector<int32_t> find_coordinators(const Timeline& timeline) {
  std::map<uint32_t, int32_t> by_number;
  for (const Slice& slice : timeline.slices) {
    if (slice.zone == Zone::kStep) by_number[slice.step] = timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
  }
  std::vector<int32_t> ranks;
  for (const StepInfo& step : timeline.steps) {
    const auto found = by_number.find(step.step);
    ranks.push_back(found != by_number.end() ? found->second : 0);
  }
  return ranks;
}

}  // namespace ferry
