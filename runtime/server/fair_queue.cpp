#include "runtime/server/fair_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {

bool FairQueue::push(const std::vector<TaskShare>& shares, Task task) {
  FERRY_CHECK(!shares.empty());
  const std::size_t room_left = room_ - waiting_.size();
  for (const TaskShare& share : shares) {
    const auto found = counts_.find(share.name);
    if ((found == counts_.end() ? 0 : found->second.num_waiting) >= room_left) return false;
  }
  std::list<Started> added(1);  // joins the others only when nothing can fail any more
  added.front().task = std::move(task);
  for (const TaskShare& share : shares)
    added.front().claims.push_back({.share = counts_.try_emplace(share.name).first, .max_running = share.max_running});
  for (const Claim& claim : added.front().claims) ++claim.share->second.num_waiting;
  waiting_.splice(waiting_.end(), added);
  return true;
}

std::optional<FairQueue::Started> FairQueue::start_next() {
  auto next = waiting_.end();
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (may_start(*it) && (next == waiting_.end() || goes_before(*it, *next))) next = it;
  }
  if (next == waiting_.end()) return std::nullopt;
  std::optional<Started> started(std::move(*next));
  waiting_.erase(next);
  ++num_starts_;
  for (const Claim& claim : started->claims) {
    Count& count = claim.share->second;
    --count.num_waiting;
    ++count.num_running;
    count.last_start = num_starts_;
  }
  return started;
}

void FairQueue::finish(const Started& started) {
  for (const Claim& claim : started.claims) {
    --claim.share->second.num_running;
    forget_if_idle(claim.share);
  }
}

bool FairQueue::may_start(const Started& task) {
  return std::all_of(task.claims.begin(), task.claims.end(),
                     [](const Claim& claim) { return claim.share->second.num_running < claim.max_running; });
}

bool FairQueue::goes_before(const Started& one, const Started& other) {
  const auto is_less = [](const Claim& a, const Claim& b) {
    const Count &x = a.share->second, &y = b.share->second;
    return std::tie(x.num_running, x.last_start) < std::tie(y.num_running, y.last_start);
  };
  return std::lexicographical_compare(one.claims.begin(), one.claims.end(), other.claims.begin(), other.claims.end(), is_less);
}

/// So that names that clients choose take no memory for longer than their tasks.
void FairQueue::forget_if_idle(Counts::iterator share) {
  if (share->second.num_waiting == 0 && share->second.num_running == 0) counts_.erase(share);
}

}  // namespace ferry
