#include "runtime/server/front/coordinator_pool.h"

#include <algorithm>
#include <utility>

namespace ferry {

const char* coordinator_state_name(CoordinatorState state) {
  switch (state) {
    case CoordinatorState::kServing: return "serving";
    case CoordinatorState::kRefusing: return "refusing";
    case CoordinatorState::kDown: return "down";
  }
  return "";
}

const char* front_port_name(FrontPort port) { return port == FrontPort::kHttp ? "http" : "grpc"; }

int64_t PoolReport::num_open() const {
  int64_t num_open = 0;
  for (const Coordinator& each : coordinators) num_open += each.num_open;
  return num_open;
}

int PoolReport::num_serving() const {
  return static_cast<int>(std::count_if(coordinators.begin(), coordinators.end(),
                                        [](const Coordinator& each) { return each.state == CoordinatorState::kServing; }));
}

CoordinatorPool::CoordinatorPool(std::vector<CoordinatorAddress> coordinators)
    : addresses_(std::move(coordinators)), coordinators_(addresses_.size()) {}

bool CoordinatorPool::may_get(std::size_t coordinator, FrontPort port, const std::vector<std::size_t>& tried) const {
  const bool was_tried = std::find(tried.begin(), tried.end(), coordinator) != tried.end();
  return has_port(coordinator, port) && !was_tried && coordinators_[coordinator].state == CoordinatorState::kServing;
}

std::vector<CoordinatorSight> CoordinatorPool::sights(const Wanted& wanted) const {
  std::vector<CoordinatorSight> sights;
  for (std::size_t i = 0; i < coordinators_.size(); ++i) {
    const Coordinator& each = coordinators_[i];
    const bool may_be_chosen = may_get(i, wanted.port, wanted.tried);
    sights.push_back({.may_be_chosen = may_be_chosen,
                      .num_open = std::ssize(each.open),
                      .num_chosen = each.num_calls[0] + each.num_calls[1],
                      .cached_pieces = may_be_chosen ? each.prompts.match(wanted.traits.beginnings) : 0});
  }
  return sights;
}

FormerPlaces CoordinatorPool::former_places(const CallTraits& traits) const {
  const auto place_in = [](const RecentMap<std::size_t>& places, const std::optional<uint64_t>& key) {
    const std::size_t* const place = key ? places.find(*key) : nullptr;
    return place == nullptr ? std::nullopt : std::optional(*place);
  };
  return {.session = place_in(sessions_, traits.session), .user = place_in(users_, traits.user)};
}

void CoordinatorPool::remember(const CallTraits& traits, std::size_t coordinator) {
  if (traits.session) sessions_.set(*traits.session, coordinator);
  if (traits.user) users_.set(*traits.user, coordinator);
  coordinators_[coordinator].prompts.add(traits.beginnings);
}

std::unique_ptr<CoordinatorPool::OpenCall> CoordinatorPool::open(Wanted wanted) {
  const std::scoped_lock lock(mutex_);
  const auto choice = choose_coordinator(sights(wanted), former_places(wanted.traits));
  if (!choice) {
    ++num_unserved_;
    return nullptr;
  }
  const std::size_t coordinator = choice->coordinator;
  if (wanted.has_prompt) {
    ++choices_[static_cast<std::size_t>(choice->reason)];
    remember(wanted.traits, coordinator);
  }
  if (!wanted.tried.empty()) ++num_retries_;
  ++coordinators_[coordinator].num_calls[static_cast<std::size_t>(wanted.port)];
  coordinators_[coordinator].open.emplace(++last_number_, std::move(wanted.on_lost));
  return std::make_unique<OpenCall>(*this, coordinator, last_number_);
}

void CoordinatorPool::close(std::size_t coordinator, uint64_t number) {
  std::map<uint64_t, std::function<void()>>::node_type gone;  // destroyed without the lock: it may own much
  const std::scoped_lock lock(mutex_);
  gone = coordinators_[coordinator].open.extract(number);
}

bool CoordinatorPool::has_another(FrontPort port, const std::vector<std::size_t>& tried) const {
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < coordinators_.size(); ++i) {
    if (may_get(i, port, tried)) return true;
  }
  return false;
}

std::vector<std::size_t> CoordinatorPool::answering(FrontPort port) const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < coordinators_.size(); ++i) {
    if (has_port(i, port) && coordinators_[i].state != CoordinatorState::kDown) all.push_back(i);
  }
  return all;
}

void CoordinatorPool::set_state(std::size_t coordinator, CoordinatorState state, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  Coordinator& each = coordinators_[coordinator];
  if (state == CoordinatorState::kDown) {
    if (each.state != CoordinatorState::kDown) ++each.num_failures;
    each.prompts.clear();
  }
  each.state = state;
  each.reason = reason;
}

void CoordinatorPool::mark_down(std::size_t coordinator, const std::string& reason) {
  set_state(coordinator, CoordinatorState::kDown, reason);
  suspect();
}

void CoordinatorPool::set_on_suspicion(std::function<void()> on_suspicion) {
  const std::scoped_lock lock(suspicion_mutex_);
  on_suspicion_ = std::move(on_suspicion);
}

void CoordinatorPool::suspect() {
  const std::scoped_lock lock(suspicion_mutex_);
  if (on_suspicion_) on_suspicion_();
}

void CoordinatorPool::count_broken(std::size_t coordinator) {
  {
    const std::scoped_lock lock(mutex_);
    ++coordinators_[coordinator].num_broken;
  }
  suspect();
}

void CoordinatorPool::give_up_calls(std::size_t coordinator) {
  std::vector<std::function<void()>> lost;
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [number, on_lost] : coordinators_[coordinator].open) {
      if (on_lost) lost.push_back(std::exchange(on_lost, nullptr));
    }
  }
  for (const auto& on_lost : lost) on_lost();
}

PoolReport CoordinatorPool::report() const {
  const std::scoped_lock lock(mutex_);
  PoolReport report{.coordinators = {},
                    .choices = choices_,
                    .num_retries = num_retries_,
                    .num_unserved = num_unserved_,
                    .num_sessions = static_cast<int64_t>(sessions_.size())};
  for (std::size_t i = 0; i < coordinators_.size(); ++i) {
    const Coordinator& each = coordinators_[i];
    report.coordinators.push_back({.address = addresses_[i],
                                   .state = each.state,
                                   .reason = each.reason,
                                   .num_open = std::ssize(each.open),
                                   .num_calls = each.num_calls,
                                   .num_broken = each.num_broken,
                                   .num_failures = each.num_failures,
                                   .remembered_pieces = static_cast<int64_t>(each.prompts.size())});
  }
  return report;
}

}  // namespace ferry
