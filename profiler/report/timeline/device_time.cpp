#include "profiler/report/timeline/device_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/check.h"

namespace ferry {
namespace {

/// Hands out stretches of time, piece by piece.
class TimeSharer {
 public:
  TimeSharer(const std::vector<Slice>& slices, const std::vector<double>& needs)
      : slices_(slices), needs_(needs), piece_of_(slices.size(), kNone) {}

  /// Those of `side_by_side` ran from begin_ns to end_ns, and no other.
  void share(const std::vector<std::size_t>& side_by_side, int64_t begin_ns, int64_t end_ns) {
    const bool is_known = std::ranges::all_of(side_by_side, [&](std::size_t i) { return needs_[i] > 0; });
    const auto need = [&](std::size_t i) { return is_known ? needs_[i] : 1.0; };
    double whole = 0, handed_out = 0;
    for (const std::size_t i : side_by_side) whole += need(i);
    int64_t at_ns = begin_ns;
    for (const std::size_t i : side_by_side) {
      handed_out += need(i);
      const bool is_last = i == side_by_side.back();
      const auto part_ns = static_cast<int64_t>(std::llround(static_cast<double>(end_ns - begin_ns) * (handed_out / whole)));
      const int64_t until_ns = is_last ? end_ns : std::clamp(begin_ns + part_ns, at_ns, end_ns);
      add(i, at_ns, until_ns, static_cast<int32_t>(side_by_side.size()) - 1);
      at_ns = until_ns;
    }
  }

  std::vector<Slice> take() { return std::move(pieces_); }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void add(std::size_t i, int64_t begin_ns, int64_t end_ns, int32_t num_beside) {
    if (piece_of_[i] == kNone || pieces_[piece_of_[i]].end_ns != begin_ns) {
      pieces_.push_back(slices_[i]);
      pieces_.back().begin_ns = begin_ns;
      pieces_.back().is_continued = slices_[i].is_continued || piece_of_[i] != kNone;
      piece_of_[i] = pieces_.size() - 1;
    }
    Slice& piece = pieces_[piece_of_[i]];
    piece.end_ns = end_ns;
    piece.num_beside = std::max(piece.num_beside, num_beside);
  }

  const std::vector<Slice>& slices_;
  const std::vector<double>& needs_;
  std::vector<std::size_t> piece_of_;  // the last one of each slice
  std::vector<Slice> pieces_;
};

}  // namespace

std::vector<Slice> share_device_time(const std::vector<Slice>& slices, const std::vector<double>& needs) {
  FERRY_CHECK_EQ(slices.size(), needs.size());
  std::vector<std::size_t> order(slices.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return slices[i].begin_ns; });
  std::vector<int64_t> edges;
  for (const Slice& slice : slices) edges.insert(edges.end(), {slice.begin_ns, slice.end_ns});
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  TimeSharer sharer(slices, needs);
  std::vector<std::size_t> running;
  std::size_t next = 0;
  for (std::size_t e = 0; e < edges.size(); ++e) {
    std::erase_if(running, [&](std::size_t i) { return slices[i].end_ns <= edges[e]; });
    for (; next < order.size() && slices[order[next]].begin_ns <= edges[e]; ++next) {
      const std::size_t i = order[next];
      if (slices[i].end_ns > slices[i].begin_ns) {
        running.push_back(i);
      } else {
        sharer.share({i}, edges[e], edges[e]);  // too short for the clock
      }
    }
    if (!running.empty()) sharer.share(running, edges[e], edges[e + 1]);
  }
  return sharer.take();
}

}  // namespace ferry
