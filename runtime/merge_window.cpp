#include "runtime/merge_window.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr std::chrono::microseconds kShortestWait{50};  // what sleeping and waking take

}  // namespace

MergeWindow::Duration MergeWindow::smooth(Duration old, Duration seen) {
  return old == Duration{} ? seen : (old * 3 + seen) / 4;
}

bool MergeWindow::note_rows(int source, int64_t step, int32_t layer, int64_t num_tokens, Deadline now) {
  Source& s = sources_[source];
  const bool begins = step != s.step;
  if (begins) {
    const bool is_next = s.step >= 0 && step == s.step + 1;
    if (is_next && s.num_tokens <= kMostTokens) s.step_time = smooth(s.step_time, now - s.step_begun);
    s.first_layer = layer;
    s.step = step;
    s.step_begun = now;
  } else {
    s.gap = smooth(s.gap, now - s.replied);
    const auto at = static_cast<std::size_t>(s.layer);
    if (s.next_layer.size() <= at) s.next_layer.resize(at + 1, -1);
    s.next_layer[at] = layer;
  }
  s.layer = layer;
  s.num_tokens = num_tokens;
  s.is_waiting = true;
  return begins;
}

void MergeWindow::note_reply(int source, Deadline now) {
  Source& s = sources_[source];
  s.is_waiting = false;
  s.replied = now;
}

void MergeWindow::forget(int source) { sources_.erase(source); }

/// By when rows of `source` for `layer` are to be expected, with some patience; nothing if it is not on its way there. Of two
/// whose steps begin apart it is the one that has less to wait for the other: if both did, they would stay apart.
std::optional<Deadline> MergeWindow::arrival(const Source& s, int32_t layer, Deadline now) {
  if (s.num_tokens > kMostTokens) return std::nullopt;
  const auto at = static_cast<std::size_t>(s.layer);
  if (!s.is_waiting && at < s.next_layer.size() && s.next_layer[at] == layer && s.gap > Duration{})
    return s.replied + s.gap + std::max<Duration>(s.gap / 2, kShortestWait);
  const Deadline next_step = s.step_begun + s.step_time;
  if (layer == s.first_layer && s.step_time > Duration{} && next_step - now <= s.step_time / 2)
    return next_step + std::max<Duration>(s.step_time / 8, kShortestWait);
  return std::nullopt;
}

std::optional<Deadline> MergeWindow::hold(int source, Deadline now) const {
  const auto own = sources_.find(source);
  if (own == sources_.end() || own->second.num_tokens > kMostTokens) return std::nullopt;
  std::optional<Deadline> until;
  for (const auto& [id, other] : sources_) {
    if (id == source) continue;
    const std::optional<Deadline> expected = arrival(other, own->second.layer, now);
    if (expected && *expected > now) until = std::max(until.value_or(*expected), *expected);
  }
  if (until) return std::min<Deadline>(*until, now + kMostWait);
  return until;
}

}  // namespace ferry
