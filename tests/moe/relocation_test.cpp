#include "moe/remote/relocation.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "runtime/base/error.h"
#include "tests/moe/moe_cases.h"
#include "tests/moe/recording_link.h"

// What members of a relocation are told, and when they are believed.

namespace ferry {
namespace {

using test::RecordingLink;

constexpr int64_t kRelocatedExperts = 4;

/// One layer a list; ranks 1 to 4.
ExpertPlacement placed(uint32_t epoch, const LayerPlacement& layer) {
  const std::vector<LayerPlacement> layers{layer, layer};
  return ExpertPlacement(epoch, worker_ranks(static_cast<int>(layer.size())), kRelocatedExperts, layers);
}

/// A change of a two-layer placement, over links that keep what is told.
struct Change {
  Change(const LayerPlacement& from, const LayerPlacement& to, const std::vector<bool>& holds_current,
         const std::vector<bool>& is_there, std::optional<uint64_t> own_voice = {})
      : links{RecordingLink(1), RecordingLink(2), RecordingLink(3), RecordingLink(4)} {
    std::vector<Relocation::Member> members;
    for (std::size_t w = 0; w < to.size(); ++w)
      members.push_back({.link = is_there[w] ? &links[w] : nullptr, .holds_current = holds_current[w]});
    relocation.emplace(placed(5, from), placed(6, to), members, own_voice);
  }

  Assignment told(std::size_t worker) const {
    EXPECT_EQ(links[worker].sent.size(), 1U);
    EXPECT_EQ(links[worker].sent.at(0).tag, kRequestTag);
    return decode_assignment(links[worker].sent.at(0).bytes, 2, kRelocatedExperts);
  }
  void answer(int32_t worker, const std::vector<uint64_t>& canaries, uint32_t epoch = 6) {
    relocation->take(worker, {.epoch = epoch, .canaries = canaries, .complaint = {}, .voice = voices[worker]});
  }
  int32_t blamed() const { return relocation->refusal() ? relocation->refusal()->worker : -1; }

  std::array<RecordingLink, 4> links;
  std::map<int32_t, uint64_t> voices;  // of those who have another one than the rest
  std::optional<Relocation> relocation;
};

RankExperts both_layers(const std::vector<LogicalExpertId>& experts) { return {experts, experts}; }

/// Experts 0, 1 on the first worker, 2, 3 on the second; the third gets 1 and 2.
Change to_a_newcomer() {
  return Change({{{0}, {1}}, {{2}, {3}}}, {{{0}}, {{3}}, {{1}, {2}}}, {true, true, false}, {true, true, true});
}

/// Expert 1 has two holders, of whom the first is the witness; two others read it.
Change with_two_readers() {
  const std::vector<LogicalExpertId> all{{0}, {1}, {2}, {3}};
  return Change({all, all}, {all, all, {{1}}, {{1}}}, {true, true, false, false}, {true, true, true, true});
}

/// Who held expert 1 is lost; two others read it.
Change without_a_witness() {
  return Change({{{0}, {2}, {3}}, {{1}}}, {{{0}, {1}, {2}, {3}}, {}, {{1}}}, {true, false, false}, {true, false, true});
}

TEST(Relocation, EveryMemberIsToldWhatItIsToHoldAndWhatToSing) {
  const Change change = to_a_newcomer();
  const std::vector<RankExperts> experts{both_layers({{0}}), both_layers({{3}}), both_layers({{1}, {2}})};
  const std::vector<RankExperts> canaries{both_layers({{1}}), both_layers({{2}}), both_layers({{1}, {2}})};
  for (std::size_t w = 0; w < 3; ++w) {
    const Assignment told = change.told(w);
    EXPECT_EQ(told.epoch, 6U);
    EXPECT_EQ(told.experts, experts[w]) << w;
    EXPECT_EQ(told.canaries, canaries[w]) << "the newcomer sings what it reads, and who has it what the newcomer reads: " << w;
  }
  EXPECT_EQ(change.relocation->num_loads(), 4);
  EXPECT_EQ(change.relocation->target().epoch(), 6U);
}

TEST(Relocation, OneWitnessIsEnough) {
  const Change change = with_two_readers();
  EXPECT_EQ(change.told(0).canaries, both_layers({{1}}));
  EXPECT_EQ(change.told(1).canaries, both_layers({}));
  EXPECT_EQ(change.told(2).canaries, both_layers({{1}}));
  EXPECT_EQ(change.told(3).canaries, both_layers({{1}}));
  EXPECT_EQ(change.relocation->num_loads(), 4);
}

TEST(Relocation, WhoIsNotThereIsToldNothingAndIsNoWitness) {
  const Change change = without_a_witness();
  EXPECT_TRUE(change.links[1].sent.empty());
  EXPECT_EQ(change.told(0).canaries, both_layers({{1}}));
  EXPECT_EQ(change.told(2).canaries, both_layers({{1}}));
}

TEST(Relocation, OneInTheSeatOfALostOneIsNoWitnessOfWhatThatHeld) {
  const LayerPlacement same{{{0}, {1}}, {{2}, {3}}};
  const Change change(same, same, {true, false}, {true, true});
  EXPECT_EQ(change.told(0).canaries, both_layers({}));
  EXPECT_EQ(change.told(1).canaries, both_layers({{2}, {3}})) << "it reads all that its seat held";
  EXPECT_EQ(change.relocation->num_loads(), 4);
}

TEST(Relocation, IsReadyWhenAllHaveAnswered) {
  Change change = to_a_newcomer();
  change.answer(2, {11, 12, 21, 22});
  EXPECT_FALSE(change.relocation->is_ready());
  change.answer(0, {11, 21});
  EXPECT_FALSE(change.relocation->is_ready());
  change.answer(1, {12, 22});
  EXPECT_TRUE(change.relocation->is_ready());
  EXPECT_FALSE(change.relocation->refusal());
}

TEST(Relocation, WhoIsNotThereIsNotWaitedFor) {
  Change change = without_a_witness();
  change.answer(0, {1, 2});
  change.answer(2, {1, 2});
  EXPECT_TRUE(change.relocation->is_ready());
}

TEST(Relocation, AFailedLinkDoesNotThrowAndIsNotReady) {
  RecordingLink one(1), two(2);
  two.fail("cut");
  const ExpertPlacement placement = placed(6, {{{0}, {1}}, {{2}, {3}}});
  Relocation relocation(placement, placement, {{.link = &one, .holds_current = true}, {.link = &two, .holds_current = true}});
  EXPECT_EQ(one.sent.size(), 1U);
  relocation.take(0, {.epoch = 6, .canaries = {}, .complaint = {}});
  EXPECT_FALSE(relocation.is_ready());
}

TEST(Relocation, AnswersToAnotherEpochAreIgnored) {
  Change change = without_a_witness();
  change.answer(0, {1, 2, 3, 4, 5}, 5);  // not even counted
  change.relocation->take(2, {.epoch = 7, .canaries = {}, .complaint = "no memory"});
  EXPECT_FALSE(change.relocation->refusal());
  change.answer(0, {1, 2});
  EXPECT_FALSE(change.relocation->is_ready());
  change.answer(2, {1, 2});
  EXPECT_TRUE(change.relocation->is_ready());
}

TEST(Relocation, AnswersOfAnotherLengthOrASecondTimeAreErrors) {
  const auto expect_internal = [](Change& change, int32_t worker, const std::vector<uint64_t>& canaries, const char* what) {
    try {
      change.answer(worker, canaries);
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  Change change = to_a_newcomer();
  expect_internal(change, 2, {11, 12, 21}, "3 canaries; allowed: 4");
  expect_internal(change, 0, {11, 21, 31}, "3 canaries; allowed: 2");
  change.answer(0, {11, 21});
  expect_internal(change, 0, {11, 21}, "twice");
  EXPECT_FALSE(change.relocation->is_ready());
}

TEST(Relocation, AComplaintIsARefusalThatNamesTheWorker) {
  Change change = to_a_newcomer();
  change.answer(0, {11, 21});
  change.answer(1, {12, 22});
  change.relocation->take(2, {.epoch = 6, .canaries = {}, .complaint = "out of memory"});
  EXPECT_FALSE(change.relocation->is_ready());
  ASSERT_TRUE(change.relocation->refusal());
  EXPECT_EQ(change.relocation->refusal()->worker, 2);
  EXPECT_EQ(change.relocation->refusal()->reason, "out of memory");
}

TEST(Relocation, WhoReadSomethingElseIsBlamedWhicheverAnswersFirst) {
  for (const bool is_witness_first : {true, false}) {
    Change change = to_a_newcomer();
    if (is_witness_first) change.answer(1, {12, 22});
    change.answer(2, {11, 12, 21, 23});
    if (!is_witness_first) change.answer(1, {12, 22});
    change.answer(0, {11, 21});
    EXPECT_FALSE(change.relocation->is_ready());
    ASSERT_TRUE(change.relocation->refusal()) << is_witness_first;
    EXPECT_EQ(change.relocation->refusal()->worker, 2) << is_witness_first;
    const std::string& reason = change.relocation->refusal()->reason;
    for (const char* part : {"expert 2 of layer 1", "rank 2", "rank 3"})
      EXPECT_NE(reason.find(part), std::string::npos) << reason;
  }
}

TEST(Relocation, OfTwoReadersTheOneThatDiffersFromTheWitnessIsBlamed) {
  std::array<int32_t, 3> order{0, 2, 3};  // the witness, who reads well, who does not
  do {
    Change change = with_two_readers();
    for (const int32_t worker : order)
      change.answer(worker, worker == 3 ? std::vector<uint64_t>{1, 9} : std::vector<uint64_t>{1, 2});
    change.answer(1, {});
    EXPECT_FALSE(change.relocation->is_ready());
    EXPECT_EQ(change.blamed(), 3) << order[0] << order[1] << order[2];
  } while (std::ranges::next_permutation(order).found);
}

TEST(Relocation, TwoReadersWithoutAWitnessHaveToAgree) {
  Change change = without_a_witness();
  change.answer(0, {1, 2});
  change.answer(2, {1, 3});
  EXPECT_FALSE(change.relocation->is_ready());
  EXPECT_TRUE(change.blamed() == 0 || change.blamed() == 2) << change.blamed();
}

constexpr uint64_t kOther = 8;  // a voice

TEST(Relocation, WhoHasAnotherVoiceThanTheWitnessIsBelieved) {
  Change change = with_two_readers();
  change.voices[3] = kOther;
  change.answer(3, {1, 9});
  change.answer(2, {1, 2});
  change.answer(0, {1, 2});
  EXPECT_FALSE(change.relocation->is_ready());
  change.answer(1, {});
  EXPECT_TRUE(change.relocation->is_ready());
  EXPECT_EQ(change.relocation->num_unwitnessed(), 2) << "in each layer one, of which it is not known what was read";
  Change wrong = with_two_readers();
  wrong.voices[3] = kOther;
  wrong.answer(0, {1, 2});
  wrong.answer(3, {1, 2});
  wrong.answer(2, {1, 3});
  EXPECT_EQ(wrong.blamed(), 2);
}

TEST(Relocation, ReadersOfOneVoiceHaveToAgreeAndOthersNot) {
  Change change = without_a_witness();
  change.voices[2] = kOther;
  change.answer(0, {1, 2});
  change.answer(2, {1, 3});
  EXPECT_TRUE(change.relocation->is_ready());
  Change alike = without_a_witness();
  alike.voices = {{0, kOther}, {2, kOther}};
  alike.answer(0, {1, 2});
  alike.answer(2, {1, 3});
  EXPECT_NE(alike.blamed(), -1);
}

/// Rank 2 held expert 1 and is lost; ranks 1 and 3 read it, of whom the first has had the others; the coordinator sings, too.
Change with_the_coordinator() {
  return Change({{{0}, {2}, {3}}, {{1}}}, {{{0}, {1}, {2}, {3}}, {}, {{1}}}, {true, false, false}, {true, false, true}, 0);
}
const std::vector<ExpertKey> kOwnSongs{{0, 1}, {1, 1}};

TEST(Relocation, TheCoordinatorSingsWhatNobodyHasHad) {
  const Change change = with_the_coordinator();
  EXPECT_EQ(change.relocation->to_sing(), kOwnSongs);
  EXPECT_EQ(change.told(0).canaries, both_layers({{1}}));
  EXPECT_EQ(change.told(2).canaries, both_layers({{1}}));
  EXPECT_TRUE(without_a_witness().relocation->to_sing().empty()) << "it is none";
  const LayerPlacement from{{{0}, {1}}, {{2}, {3}}}, to{{{0}, {1}}, {}, {{1}, {2}, {3}}};
  const Change witnessed(from, to, {true, false, false}, {true, false, true}, 0);
  EXPECT_EQ(witnessed.relocation->to_sing(), (std::vector<ExpertKey>{{0, 2}, {0, 3}, {1, 2}, {1, 3}}))
      << "of expert 1 rank 1 vouches for";
}

/// Songs of the coordinator in the order of kOwnSongs, of ranks 1 and 3 as they are asked for; then they are judged.
Change judged(const std::vector<uint64_t>& own, const std::vector<uint64_t>& first, const std::vector<uint64_t>& third,
              const std::map<int32_t, uint64_t>& voices = {}) {
  Change change = with_the_coordinator();
  change.voices = voices;
  change.answer(2, third);
  change.answer(0, first);
  EXPECT_TRUE(change.relocation->is_answered());
  EXPECT_FALSE(change.relocation->is_ready()) << "the coordinator has not sung";
  for (std::size_t i = 0; i < own.size(); ++i) change.relocation->hear(kOwnSongs[i], own[i]);
  change.relocation->judge();
  return change;
}

TEST(Relocation, IsReadyWhenSongsAreJudged) {
  const Change change = judged({1, 2}, {1, 2}, {1, 2});
  EXPECT_TRUE(change.relocation->is_ready());
  EXPECT_EQ(change.relocation->num_unwitnessed(), 0);
}

TEST(Relocation, WhoReadSomethingElseThanTheCoordinatorIsBlamed) {
  const Change third = judged({1, 2}, {1, 2}, {1, 3});
  EXPECT_EQ(third.blamed(), 2);
  EXPECT_FALSE(third.relocation->is_ready());
  for (const char* part : {"expert 1 of layer 1", "on rank 3 than on the coordinator"})
    EXPECT_NE(third.relocation->refusal()->reason.find(part), std::string::npos) << third.relocation->refusal()->reason;
  EXPECT_EQ(judged({1, 2}, {1, 3}, {1, 2}).blamed(), 0);
  EXPECT_EQ(judged({1, 2}, {7, 8}, {1, 2}).blamed(), 0) << "all that it reads is wrong";
  EXPECT_NE(judged({1, 2}, {1, 3}, {1, 3}).blamed(), -1) << "both are wrong, and of one mind";
  EXPECT_EQ(judged({1, 2}, {1, 2}, {1, 3}, {{0, kOther}}).blamed(), 2) << "rank 1 has another voice";
}

TEST(Relocation, WhoHasAnotherVoiceIsBelievedAsIfTheCoordinatorWereNoWitness) {
  const Change device = judged({1, 2}, {1, 2}, {1, 3}, {{2, kOther}});
  EXPECT_TRUE(device.relocation->is_ready()) << "though most of what it sings is the same";
  EXPECT_EQ(device.relocation->num_unwitnessed(), 2);
  const Change both = judged({1, 2}, {5, 6}, {5, 6}, {{0, kOther}, {2, kOther}});
  EXPECT_TRUE(both.relocation->is_ready());
  EXPECT_NE(judged({1, 2}, {5, 6}, {5, 8}, {{0, kOther}, {2, kOther}}).blamed(), -1) << "but the two of them have to agree";
}

TEST(Relocation, WhatTheCoordinatorHasNoTimeForIsTakenOnTrust) {
  const Change change = judged({1}, {1, 2}, {1, 2});
  EXPECT_TRUE(change.relocation->is_ready());
  EXPECT_EQ(change.relocation->num_unwitnessed(), 1);
  EXPECT_EQ(judged({1}, {1, 2}, {3, 2}).blamed(), 2);
  EXPECT_EQ(judged({}, {1, 2}, {1, 2}).relocation->num_unwitnessed(), 2);
}

}  // namespace
}  // namespace ferry
