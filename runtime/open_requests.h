#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/coordinator.h"
#include "runtime/schedule/sequence.h"
#include "runtime/text/detokenizer.h"

namespace ferry {

/// A request from its acceptance to its last event.
struct OpenRequest {
  using TimePoint = Sequence::TimePoint;

  Request request;  // until the scheduler has it
  EventSink sink;
  std::optional<Detokenizer> detokenizer;  // absent without a tokenizer
  TimePoint arrival, queued;

  std::string owner, id;  // as the request's, which are moved away
  std::shared_ptr<const Siblings> siblings;
  Sequence* sequence = nullptr;  // once the scheduler has it
  RequestState state = RequestState::kQueued;
  bool is_abort_wanted = false;
  int64_t num_prompt = 0;                                       // tokens, once the scheduler has it
  int64_t num_cached = 0, num_computed = 0, num_generated = 0;  // likewise, as of the last step
};

/// The one table of open requests: whose id is taken, who may be ended, how many are in which state. Requests that the
/// scheduler does not have yet are in it, too.
///
/// The coordinator's mutex guards it. Entries stay where they are and only the engine's thread erases them, so that it may use
/// sink, detokenizer and sequence of one without the mutex.
class OpenRequests {
 public:
  /// Enters one under the next number and its id, a new one if it has none. Throws Error{kInvalidArgument} for an id that its
  /// owner has given to another one; siblings may share theirs.
  RequestNumber add(OpenRequest request);

  /// Wants one that has not ended to end; false if there is none. The same for those that share an id, and for all.
  bool want_abort(RequestNumber number);
  bool want_abort(const std::string& owner, const std::string& id);
  void want_all_aborted();

  /// Whether somebody added one or wants one ended, and the engine's thread has not taken that over.
  bool has_news() const { return has_aborts_ || entries_.lower_bound(first_new_) != entries_.end(); }
  /// The oldest that the scheduler does not have; null if it has all. place() says that it has it.
  OpenRequest* next_new();
  void place(OpenRequest& request, Sequence& sequence);
  /// Calls `abort` with the sequences of those that are wanted to end.
  void take_aborts(const std::function<void(Sequence&)>& abort);
  /// Takes over the state of the scheduler's sequence, and how far it is; take_states() of all.
  void take_state(OpenRequest& request);
  void take_states();
  /// The `most` oldest that have not ended, as of the last step.
  std::vector<OpenRequestSight> oldest(std::size_t most, OpenRequest::TimePoint now) const;

  /// One that is open.
  OpenRequest& at(RequestNumber number) { return entries_.at(number); }
  /// It has ended and its owner is about to hear of it: the id may be used again.
  void close(RequestNumber number);
  /// Its owner has heard of it.
  void erase(RequestNumber number);
  void clear();

  bool empty() const { return entries_.empty(); }
  int64_t count(RequestState state) const { return counts_[static_cast<std::size_t>(state)]; }
  /// In order of arrival; for when nobody may add any.
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }

 private:
  using Name = std::pair<std::string, std::string>;  // owner and id

  bool is_taken(const Name& name, const Siblings* siblings) const;
  void set_state(OpenRequest& request, RequestState state);

  std::map<RequestNumber, OpenRequest> entries_;
  std::multimap<Name, RequestNumber> numbers_;  // of those that are not closed
  std::array<int64_t, kNumRequestStates> counts_{};
  RequestNumber first_new_{}, next_number_{};
  bool has_aborts_ = false;
};

}  // namespace ferry
