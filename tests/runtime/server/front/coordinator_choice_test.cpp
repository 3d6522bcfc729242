#include "runtime/server/front/coordinator_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace ferry {
namespace {

CoordinatorSight up(int64_t num_open = 0, std::size_t cached_pieces = 0, int64_t num_chosen = 0) {
  return {.may_be_chosen = true, .num_open = num_open, .num_chosen = num_chosen, .cached_pieces = cached_pieces};
}
CoordinatorSight down(std::size_t cached_pieces = 0) { return {.may_be_chosen = false, .cached_pieces = cached_pieces}; }

void expect_choice(const std::vector<CoordinatorSight>& all, const FormerPlaces& former, std::size_t coordinator,
                   ChoiceReason reason) {
  const auto choice = choose_coordinator(all, former);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->coordinator, coordinator);
  EXPECT_EQ(choice->reason, reason);
}

TEST(CoordinatorChoice, NobodyIsChosenWhereNobodyMayBe) {
  EXPECT_FALSE(choose_coordinator({}, {}).has_value());
  EXPECT_FALSE(choose_coordinator(std::vector{down(), down(7)}, {.session = 0, .user = 1}).has_value());
}

TEST(CoordinatorChoice, FewestOpenCallsThenFewestCallsThenTheFirst) {
  expect_choice({up(2), up(1), up(3)}, {}, 1, ChoiceReason::kLoad);
  expect_choice({up(1, 0, 9), up(1, 0, 8), up(1, 0, 8)}, {}, 1, ChoiceReason::kLoad);
  expect_choice({up(), up(), up()}, {}, 0, ChoiceReason::kLoad);
  expect_choice({down(), up(5), up(5)}, {}, 1, ChoiceReason::kLoad);
}

TEST(CoordinatorChoice, ASessionStaysWhateverElseIsKnown) {
  expect_choice({up(0, 50), up(3), up(0)}, {.session = 1, .user = 2}, 1, ChoiceReason::kSession);
}

TEST(CoordinatorChoice, ASessionGoesOnWhereThePromptIsIfItsCoordinatorIsDown) {
  expect_choice({up(0), down(), up(3, 4)}, {.session = 1, .user = {}}, 2, ChoiceReason::kPrefix);
  expect_choice({up(1), down(), up(0)}, {.session = 1, .user = {}}, 2, ChoiceReason::kLoad);
  expect_choice({up(1), up(0)}, {.session = 7, .user = 7}, 1, ChoiceReason::kLoad);  // one that is not there any more
}

TEST(CoordinatorChoice, TheLongestBeginningWins) {
  expect_choice({up(0, 3), up(2, 4), up(0, 0)}, {}, 1, ChoiceReason::kPrefix);
  expect_choice({up(0, 3), up(2, 4), down(9)}, {}, 1, ChoiceReason::kPrefix);
}

TEST(CoordinatorChoice, OfEqualBeginningsTheUsersThenTheLeastLoaded) {
  expect_choice({up(2, 4), up(1, 4), up(3, 4)}, {.session = {}, .user = 2}, 2, ChoiceReason::kPrefix);
  expect_choice({up(2, 4), up(1, 4), up(0, 3)}, {.session = {}, .user = 2}, 1, ChoiceReason::kPrefix);
}

TEST(CoordinatorChoice, AUserStaysWhereNothingElseIsKnown) {
  expect_choice({up(0), up(2)}, {.session = {}, .user = 1}, 1, ChoiceReason::kUser);
}

TEST(CoordinatorChoice, WhoHasTooManyCallsOpenIsPassedOver) {
  // Of two, of which the other one has none: n > 1.25 n / 2 + 4 from n = 11 on.
  expect_choice({up(10, 9), up(0)}, {}, 0, ChoiceReason::kPrefix);
  expect_choice({up(11, 9), up(0)}, {}, 1, ChoiceReason::kOverflow);
  expect_choice({up(10), up(0)}, {.session = 0, .user = {}}, 0, ChoiceReason::kSession);
  expect_choice({up(11), up(0)}, {.session = 0, .user = {}}, 1, ChoiceReason::kOverflow);
  expect_choice({up(11), up(0)}, {.session = {}, .user = 0}, 1, ChoiceReason::kOverflow);
  // Those that are down do not count: three calls each of four would be few, of one they are not.
  expect_choice({up(11), up(0), down(), down()}, {.session = 0, .user = {}}, 1, ChoiceReason::kOverflow);
}

TEST(CoordinatorChoice, AnOverloadedSessionGoesWhereThePromptIs) {
  expect_choice({up(20), up(2, 5), up(0)}, {.session = 0, .user = {}}, 1, ChoiceReason::kPrefix);
}

}  // namespace
}  // namespace ferry
