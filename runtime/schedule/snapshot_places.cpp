#include "runtime/schedule/snapshot_places.h"

#include <algorithm>
#include <array>

namespace ferry {
namespace {

/// Of what tells where messages begin: the second, the last but one and the last, or -1.
class Starts {
 public:
  void add(int64_t num_tokens) {
    if (++num_ == 2) second_ = num_tokens;
    before_last_ = last_;
    last_ = num_tokens;
  }
  std::array<int64_t, 3> chosen() const { return {second_, before_last_, last_}; }
  bool any() const { return num_ > 0; }

 private:
  int64_t num_ = 0, second_ = -1, before_last_ = -1, last_ = -1;
};

Starts find_starts(const Request& request, std::optional<TokenId> message_start) {
  Starts starts;
  for (const int64_t hint : request.cache_hints) starts.add(hint);
  if (starts.any() || !message_start) return starts;
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] == *message_start) starts.add(static_cast<int64_t>(i));
  }
  return starts;
}

}  // namespace

void add_snapshot_place(std::vector<SnapshotPlace>& places, SnapshotPlace place) {
  const auto at = std::ranges::lower_bound(places, place.num_tokens, {}, &SnapshotPlace::num_tokens);
  if (at == places.end() || at->num_tokens != place.num_tokens) {
    places.insert(at, place);
  } else if (at->is_on_grid) {
    *at = place;
  }
}

void choose_snapshot_places(const Request& request, int64_t unit_tokens, std::optional<TokenId> message_start,
                            std::vector<SnapshotPlace>& places) {
  places.clear();
  const int64_t last = (std::ssize(request.prompt) - 1) / unit_tokens * unit_tokens;
  const auto add = [&](int64_t num_tokens, bool is_on_grid) {
    const int64_t at = std::min(num_tokens / unit_tokens * unit_tokens, last);
    if (at > 0) add_snapshot_place(places, {.num_tokens = at, .is_on_grid = is_on_grid});
  };
  const Starts starts = find_starts(request, message_start);
  if (!starts.any()) add(last, false);
  for (const int64_t start : starts.chosen()) add(start, false);
  if (std::ssize(request.prompt) <= kLongPrompt) return;
  for (int64_t at = kSnapshotGrid; at <= last; at += kSnapshotGrid) add(at, true);
}

}  // namespace ferry
