#include "runtime/open_requests.h"

#include "runtime/base/check.h"
#include "runtime/base/random_id.h"

namespace ferry {
namespace {

RequestNumber next_of(RequestNumber number) { return RequestNumber{static_cast<uint64_t>(number) + 1}; }

}  // namespace

RequestNumber OpenRequests::add(OpenRequest request) {
  const RequestNumber number = next_number_;
  const bool is_nameless = request.request.id.empty();
  if (is_nameless) request.request.id = random_id();
  while (!numbers_.emplace(std::pair(request.request.owner, request.request.id), number).second) {
    if (!is_nameless) throw_taken_id(request.request.id);
    request.request.id = random_id();
  }
  const auto name = numbers_.find({request.request.owner, request.request.id});
  try {
    request.owner = request.request.owner;
    request.id = request.request.id;
    request.request.number = number;
    entries_.emplace(number, std::move(request));
  } catch (...) {
    numbers_.erase(name);
    throw;
  }
  next_number_ = next_of(number);
  ++counts_[static_cast<std::size_t>(RequestState::kQueued)];
  return number;
}

bool OpenRequests::want_abort(RequestNumber number) {
  const auto entry = entries_.find(number);
  if (entry == entries_.end() || entry->second.state == RequestState::kFinished) return false;
  entry->second.is_abort_wanted = has_aborts_ = true;
  return true;
}

bool OpenRequests::want_abort(const std::string& owner, const std::string& id) {
  const auto named = numbers_.find({owner, id});
  return named != numbers_.end() && want_abort(named->second);
}

void OpenRequests::want_all_aborted() {
  for (auto& [number, request] : entries_) request.is_abort_wanted = true;
  has_aborts_ = true;
}

OpenRequest* OpenRequests::next_new() {
  const auto entry = entries_.lower_bound(first_new_);
  return entry == entries_.end() ? nullptr : &entry->second;
}

void OpenRequests::place(OpenRequest& request, Sequence& sequence) {
  request.sequence = &sequence;
  first_new_ = next_of(sequence.request.number);
}

void OpenRequests::take_aborts(const std::function<void(Sequence&)>& abort) {
  if (!std::exchange(has_aborts_, false)) return;
  for (auto& [number, request] : entries_) {
    if (request.is_abort_wanted && request.sequence != nullptr) abort(*request.sequence);
  }
}

void OpenRequests::take_states() {
  for (auto& [number, request] : entries_) {
    if (request.sequence != nullptr) set_state(request, request.sequence->state());
  }
}

void OpenRequests::close(RequestNumber number) {
  OpenRequest& request = entries_.at(number);
  set_state(request, RequestState::kFinished);
  numbers_.erase({request.owner, request.id});
}

void OpenRequests::erase(RequestNumber number) {
  const auto entry = entries_.find(number);
  FERRY_CHECK(entry != entries_.end());
  --counts_[static_cast<std::size_t>(entry->second.state)];
  entries_.erase(entry);
}

void OpenRequests::clear() {
  entries_.clear();
  numbers_.clear();
  counts_.fill(0);
  has_aborts_ = false;
}

void OpenRequests::set_state(OpenRequest& request, RequestState state) {
  --counts_[static_cast<std::size_t>(request.state)];
  request.state = state;
  ++counts_[static_cast<std::size_t>(state)];
}

}  // namespace ferry
