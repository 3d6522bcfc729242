#include "runtime/server/preparations.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/schedule/request.h"

namespace ferry {
namespace {

constexpr std::chrono::seconds kAbortPatience{5};  // for those that are aborted to notice it: a fetch looks once a second

}  // namespace

Preparations::Place Preparations::enter(const std::string& owner, const std::string& request_id, std::function<void()> abort) {
  const std::scoped_lock lock(mutex_);
  if (is_draining_) throw_draining();
  if (!request_id.empty() && find(owner, request_id) != nullptr) throw_taken_id(request_id);
  entries_.emplace(next_place_, Entry{.owner = owner, .request_id = request_id, .abort = std::move(abort)});
  return next_place_++;
}

void Preparations::leave(Place place) {
  {
    const std::scoped_lock lock(mutex_);
    entries_.erase(place);
  }
  left_.notify_all();
}

bool Preparations::abort(const std::string& owner, const std::string& request_id) {
  const std::scoped_lock lock(mutex_);
  Entry* const entry = find(owner, request_id);
  if (entry == nullptr) return false;
  entry->abort();
  return true;
}

void Preparations::drain(Clock::Time deadline) {
  std::unique_lock lock(mutex_);
  is_draining_ = true;
  const auto is_empty = [this] { return entries_.empty(); };
  if (clock_.wait_until(lock, left_, deadline, is_empty)) return;
  for (auto& [place, entry] : entries_) entry.abort();
  clock_.wait_for(lock, left_, kAbortPatience, is_empty);
}

/// Needs mutex_.
Preparations::Entry* Preparations::find(const std::string& owner, const std::string& request_id) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& placed) {
    return placed.second.owner == owner && placed.second.request_id == request_id;
  });
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace ferry
