#include "profiler/export/ascend_calls.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "profiler/export/ascend_rank.h"

namespace ferry {
namespace {

/// Appends a lane's kernels. A slice around the next one loses that one's time if it is an operator, and waits are nobody's.
void append_kernels(const Timeline& timeline, int32_t lane, int64_t stream, std::vector<AscendKernel>& kernels) {
  struct Open {
    int64_t end_ns;
    int64_t kernel;  // index into `kernels`, -1 for what is no operator
    bool is_wait;
  };
  std::vector<Open> open;
  const auto [first, last] = timeline.lane_range(lane);
  int64_t busy_until_ns = -1;
  for (int32_t i = first; i < last; ++i) {
    const Slice& slice = timeline.slices[static_cast<std::size_t>(i)];
    const ZoneKind kind = kind_of(slice);
    while (!open.empty() && open.back().end_ns <= slice.begin_ns) open.pop_back();
    const bool is_in_wait = !open.empty() && open.back().is_wait;
    if ((kind == ZoneKind::kWait || kind == ZoneKind::kCompute) && !is_in_wait) {
      const auto around = std::find_if(open.rbegin(), open.rend(), [](const Open& o) { return o.kernel >= 0; });
      if (around != open.rend()) kernels[static_cast<std::size_t>(around->kernel)].work_ns -= slice.duration_ns();
    }
    int64_t kernel = -1;
    if (kind == ZoneKind::kCompute && !is_in_wait) {
      kernel = static_cast<int64_t>(kernels.size());
      const int64_t gap_ns = busy_until_ns < 0 ? 0 : std::max<int64_t>(slice.begin_ns - busy_until_ns, 0);
      kernels.push_back({.slice = i, .stream = stream, .work_ns = slice.duration_ns(), .gap_ns = gap_ns});
      busy_until_ns = std::max(busy_until_ns, slice.end_ns);
    }
    open.push_back({slice.end_ns, kernel, is_in_wait || kind == ZoneKind::kWait});
  }
}

std::vector<AscendKernel> find_kernels(const Timeline& timeline, const std::vector<int32_t>& lanes) {
  std::vector<AscendKernel> kernels;
  int64_t stream = 0;
  for (const int32_t lane : lanes) {
    if (!is_stream(timeline.lanes[static_cast<std::size_t>(lane)])) continue;
    append_kernels(timeline, lane, stream, kernels);
    ++stream;
  }
  const auto begin_of = [&](const AscendKernel& k) { return timeline.slices[static_cast<std::size_t>(k.slice)].begin_ns; };
  std::stable_sort(kernels.begin(), kernels.end(),
                   [&](const AscendKernel& x, const AscendKernel& y) { return begin_of(x) < begin_of(y); });
  return kernels;
}

/// Ties kernels to calls.
class CallFinder {
 public:
  CallFinder(const Timeline& timeline, const std::vector<int32_t>& lanes, AscendWork& work)
      : timeline_(timeline), lanes_(lanes), work_(work) {}

  void find() {
    find_calls_of_threads();
    for (AscendKernel& kernel : work_.kernels) kernel.call = call_of(kernel);
    sum_up();
  }

 private:
  /// By what a hand-over and what the device ran are the same.
  using Key = std::tuple<Zone, uint32_t, int16_t, uint8_t>;
  static Key key_of(const Slice& slice) { return {slice.zone, slice.step, slice.layer, slice.micro_batch}; }

  const Slice& slice_at(int32_t slice) const { return timeline_.slices[static_cast<std::size_t>(slice)]; }
  const Lane& lane_of(const Slice& slice) const { return timeline_.lanes[static_cast<std::size_t>(slice.lane)]; }

  void find_calls_of_threads() {
    std::vector<int32_t> slices;
    for (const AscendKernel& kernel : work_.kernels) {
      if (lane_of(slice_at(kernel.slice)).kind == Lane::Kind::kThread) slices.push_back(kernel.slice);
    }
    for (const int32_t lane : lanes_) {
      if (timeline_.lanes[static_cast<std::size_t>(lane)].kind != Lane::Kind::kThread) continue;
      const auto [first, last] = timeline_.lane_range(lane);
      for (int32_t i = first; i < last; ++i) {
        if (slice_at(i).is_handed_over) slices.push_back(i);
      }
    }
    std::sort(slices.begin(), slices.end());
    for (const int32_t slice : slices) {
      if (slice_at(slice).is_handed_over) handed_over_[key_of(slice_at(slice))].push_back(next_call());
      work_.calls.push_back({.slice = slice});
    }
  }

  int32_t next_call() const { return static_cast<int32_t>(work_.calls.size()); }

  /// Of a device's kernels the first of a kind belongs to the first hand-over of that kind, the second to the second.
  int32_t call_of(const AscendKernel& kernel) {
    const Slice& slice = slice_at(kernel.slice);
    if (lane_of(slice).kind == Lane::Kind::kThread) return work_.call_of(kernel.slice);
    const Key key = key_of(slice);
    const auto last = last_call_.find(key);
    if (slice.is_continued && last != last_call_.end()) return last->second;
    int32_t call = next_call();
    std::deque<int32_t>& waiting = handed_over_[key];
    if (waiting.empty()) {
      work_.calls.push_back({.slice = kernel.slice, .is_seen = false});
    } else {
      call = waiting.front();
      waiting.pop_front();
    }
    last_call_[key] = call;
    return call;
  }

  void sum_up() {
    std::vector<AscendCall>& calls = work_.calls;
    for (const AscendKernel& kernel : work_.kernels) {
      AscendCall& call = calls[static_cast<std::size_t>(kernel.call)];
      const bool is_core = std::strcmp(accelerator_core(slice_at(kernel.slice).zone), "AI_VECTOR_CORE") != 0;
      call.self_ns += kernel.work_ns;
      if (is_core) call.core_self_ns += kernel.work_ns;
    }
    std::vector<AscendCall*> open;  // outermost first
    for (AscendCall& call : calls) {
      const Slice& slice = slice_at(call.slice);
      while (!open.empty() && !is_inside(slice, slice_at(open.back()->slice))) open.pop_back();
      open.push_back(&call);
      for (AscendCall* around : open) {
        around->total_ns += call.self_ns;
        around->core_total_ns += call.core_self_ns;
      }
    }
  }

  /// `slice` is the later one of the two.
  static bool is_inside(const Slice& slice, const Slice& around) {
    return slice.lane == around.lane && slice.begin_ns < around.end_ns;
  }

  const Timeline& timeline_;
  const std::vector<int32_t>& lanes_;
  AscendWork& work_;
  std::map<Key, std::deque<int32_t>> handed_over_;  // calls whose kernel did not come yet
  std::map<Key, int32_t> last_call_;
};

}  // namespace

int32_t AscendWork::call_of(int32_t slice) const {
  const auto seen_end = std::partition_point(calls.begin(), calls.end(), [](const AscendCall& call) { return call.is_seen; });
  const auto found = std::partition_point(calls.begin(), seen_end, [&](const AscendCall& call) { return call.slice < slice; });
  return found != seen_end && found->slice == slice ? static_cast<int32_t>(found - calls.begin()) : -1;
}

AscendWork find_work(const Timeline& timeline, const std::vector<int32_t>& lanes) {
  AscendWork work{.kernels = find_kernels(timeline, lanes), .calls = {}};
  CallFinder(timeline, lanes, work).find();
  return work;
}

}  // namespace ferry
