#include "runtime/open_requests.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace ferry {
namespace {

OpenRequest request_of(const std::string& owner, const std::string& id) {
  OpenRequest open{.sink = [](const GenerateEvent&) {}};
  open.request.owner = owner;
  open.request.id = id;
  return open;
}

/// What the scheduler would have of a request.
Sequence sequence_of(OpenRequest& open) {
  Sequence sequence;
  sequence.request = std::move(open.request);
  return sequence;
}

TEST(OpenRequests, IdsAreTakenUntilTheLastEventBegins) {
  OpenRequests requests;
  const RequestNumber first = requests.add(request_of("anna", "job"));
  test::expect_error([&] { requests.add(request_of("anna", "job")); }, ErrorCode::kInvalidArgument, {"job"});
  EXPECT_NE(requests.add(request_of("bob", "job")), first);
  EXPECT_NE(requests.at(requests.add(request_of("", ""))).id, requests.at(requests.add(request_of("", ""))).id);
  EXPECT_EQ(requests.count(RequestState::kQueued), 4);
  requests.close(first);
  EXPECT_FALSE(requests.want_abort(first)) << "it has ended";
  const RequestNumber again = requests.add(request_of("anna", "job"));
  EXPECT_NE(again, first);
  requests.erase(first);
  EXPECT_TRUE(requests.want_abort("anna", "job"));
  EXPECT_FALSE(requests.want_abort("carl", "job"));
}

TEST(OpenRequests, SiblingsShareAnId) {
  OpenRequests requests;
  const auto siblings = std::make_shared<Siblings>(Siblings{.num_all = 2});
  const auto sibling_of = [&](const std::shared_ptr<Siblings>& group) {
    OpenRequest open = request_of("anna", "job");
    open.request.siblings = group;
    return open;
  };
  const RequestNumber first = requests.add(sibling_of(siblings));
  const RequestNumber second = requests.add(sibling_of(siblings));
  test::expect_error([&] { requests.add(request_of("anna", "job")); }, ErrorCode::kInvalidArgument, {"job"});
  test::expect_error([&] { requests.add(sibling_of(std::make_shared<Siblings>())); }, ErrorCode::kInvalidArgument, {"job"});
  EXPECT_TRUE(requests.want_abort("anna", "job"));
  EXPECT_TRUE(requests.at(first).is_abort_wanted);
  EXPECT_TRUE(requests.at(second).is_abort_wanted);
  requests.close(first);
  test::expect_error([&] { requests.add(request_of("anna", "job")); }, ErrorCode::kInvalidArgument, {"job"});
  EXPECT_TRUE(requests.want_abort("anna", "job")) << "the other one is open";
  requests.close(second);
  EXPECT_FALSE(requests.want_abort("anna", "job"));
  EXPECT_NE(requests.add(request_of("anna", "job")), second);
}

TEST(OpenRequests, TheSchedulerGetsEachOnceInOrder) {
  OpenRequests requests;
  EXPECT_FALSE(requests.has_news());
  std::vector<RequestNumber> numbers{requests.add(request_of("", "a")), requests.add(request_of("", "b"))};
  std::vector<Sequence> sequences;
  sequences.reserve(3);
  while (OpenRequest* open = requests.next_new()) {
    sequences.push_back(sequence_of(*open));
    EXPECT_EQ(sequences.back().request.number, numbers.at(sequences.size() - 1));
    requests.place(*open, sequences.back());
  }
  EXPECT_EQ(sequences.size(), 2U);
  EXPECT_FALSE(requests.has_news());
  requests.add(request_of("", "c"));
  EXPECT_TRUE(requests.has_news());
  EXPECT_EQ(requests.next_new()->id, "c");
}

TEST(OpenRequests, AbortsReachWhatTheSchedulerHas) {
  OpenRequests requests;
  const RequestNumber a = requests.add(request_of("", "a"));
  requests.add(request_of("", "b"));
  Sequence sequence = sequence_of(requests.at(a));
  requests.place(requests.at(a), sequence);
  std::vector<std::string> aborted;
  const auto take = [&] { requests.take_aborts([&](Sequence& s) { aborted.push_back(s.request.id); }); };
  take();
  EXPECT_TRUE(aborted.empty());
  EXPECT_TRUE(requests.want_abort(a));
  EXPECT_TRUE(requests.has_news());
  take();
  EXPECT_EQ(aborted, std::vector<std::string>{"a"});
}

TEST(OpenRequests, StatesAreThoseOfTheSequences) {
  OpenRequests requests;
  const RequestNumber a = requests.add(request_of("", "a"));
  requests.add(request_of("", "b"));
  Sequence sequence = sequence_of(requests.at(a));
  requests.place(requests.at(a), sequence);
  sequence.become(RequestState::kPrefilling);
  EXPECT_EQ(requests.count(RequestState::kQueued), 2) << "as it was";
  requests.take_states();
  EXPECT_EQ(requests.count(RequestState::kPrefilling), 1);
  EXPECT_EQ(requests.count(RequestState::kQueued), 1);
  sequence.become(RequestState::kPreempted);
  requests.take_states();
  EXPECT_EQ(requests.count(RequestState::kPreempted), 1);
  requests.close(a);
  requests.erase(a);
  EXPECT_EQ(requests.count(RequestState::kPreempted) + requests.count(RequestState::kFinished), 0);
  EXPECT_FALSE(requests.empty());
}

TEST(OpenRequests, TheOldestAreSeenAsTheyAre) {
  OpenRequests requests;
  const auto start = std::chrono::steady_clock::now();
  for (const char* id : {"a", "b", "c"}) {
    OpenRequest open = request_of("", id);
    open.arrival = start;
    open.request.prompt = {1, 2, 3};
    requests.add(std::move(open));
  }
  OpenRequest& first = *requests.next_new();
  Sequence sequence = sequence_of(first);
  sequence.tokens = {1, 2, 3, 7, 8};
  sequence.num_computed = 4;
  sequence.num_cached = 2;
  requests.place(first, sequence);
  sequence.become(RequestState::kPrefilling);
  requests.take_states();
  const std::vector<OpenRequestSight> seen = requests.oldest(2, start + std::chrono::seconds(3));
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_LT(seen[0].number, seen[1].number);
  EXPECT_EQ(seen[0].state, RequestState::kPrefilling);
  EXPECT_DOUBLE_EQ(seen[0].age_s, 3);
  EXPECT_EQ(seen[0].prompt_tokens, 3);
  EXPECT_EQ(seen[0].cached_tokens, 2);
  EXPECT_EQ(seen[0].computed_tokens, 4);
  EXPECT_EQ(seen[0].generated_tokens, 2);
  EXPECT_EQ(seen[1].state, RequestState::kQueued);
  requests.close(sequence.request.number);
  EXPECT_EQ(requests.oldest(9, start).size(), 2U) << "one that has ended is no longer open";
}

}  // namespace
}  // namespace ferry
