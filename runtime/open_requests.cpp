#include "runtime/open_requests.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/random_id.h"

namespace ferry {
namespace {

RequestNumber next_of(RequestNumber number) { return RequestNumber{static_cast<uint64_t>(number) + 1}; }

}  // namespace

/// By a request that is no sibling.
bool OpenRequests::is_taken(const Name& name, const Siblings* siblings) const {
  const auto named = numbers_.find(name);
  return named != numbers_.end() && (siblings == nullptr || entries_.at(named->second).siblings.get() != siblings);
}

RequestNumber OpenRequests::add(OpenRequest request) {
  const RequestNumber number = next_number_;
  const bool is_nameless = request.request.id.empty();
  if (is_nameless) request.request.id = random_id();
  while (is_taken({request.request.owner, request.request.id}, request.request.siblings.get())) {
    if (!is_nameless) throw_taken_id(request.request.id);
    request.request.id = random_id();
  }
  const auto name = numbers_.emplace(Name(request.request.owner, request.request.id), number);
  try {
    request.owner = request.request.owner;
    request.id = request.request.id;
    request.siblings = request.request.siblings;
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
  bool found = false;
  const auto [first, last] = numbers_.equal_range({owner, id});
  for (auto named = first; named != last; ++named) found |= want_abort(named->second);
  return found;
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
  request.num_prompt = sequence.num_prompt();
  first_new_ = next_of(sequence.request.number);
}

void OpenRequests::take_aborts(const std::function<void(Sequence&)>& abort) {
  if (!std::exchange(has_aborts_, false)) return;
  for (auto& [number, request] : entries_) {
    if (request.is_abort_wanted && request.sequence != nullptr) abort(*request.sequence);
  }
}

void OpenRequests::take_state(OpenRequest& request) {
  if (request.sequence == nullptr) return;
  const Sequence& sequence = *request.sequence;
  set_state(request, sequence.state());
  request.num_cached = sequence.num_cached;
  request.num_computed = sequence.num_computed;
  request.num_generated = sequence.num_generated();
}

void OpenRequests::take_states() {
  for (auto& [number, request] : entries_) take_state(request);
}

std::vector<OpenRequestSight> OpenRequests::oldest(std::size_t most, OpenRequest::TimePoint now) const {
  std::vector<OpenRequestSight> sights;
  for (const auto& [number, request] : entries_) {
    if (sights.size() == most) break;
    if (request.state == RequestState::kFinished) continue;
    sights.push_back({.number = static_cast<uint64_t>(number),
                      .state = request.state,
                      .age_s = std::chrono::duration<double>(now - request.arrival).count(),
                      .prompt_tokens = request.num_prompt,
                      .cached_tokens = request.num_cached,
                      .computed_tokens = request.num_computed,
                      .generated_tokens = request.num_generated});
  }
  return sights;
}

void OpenRequests::close(RequestNumber number) {
  OpenRequest& request = entries_.at(number);
  set_state(request, RequestState::kFinished);
  const auto [first, last] = numbers_.equal_range({request.owner, request.id});
  const auto named = std::find_if(first, last, [number](const auto& entry) { return entry.second == number; });
  FERRY_CHECK(named != last);
  numbers_.erase(named);
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
