#include "runtime/expert_record.h"

#include <gtest/gtest.h>

#include <fstream>

#include "moe/placement/load_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

ExpertLoads loads_of(double num_steps, std::vector<double> rows, std::vector<double> touched) {
  return {.num_layers = 1, .num_experts = 2, .num_steps = num_steps, .rows = std::move(rows), .touched = std::move(touched)};
}

TEST(JoinLoads, EarlierRunsFillUpWhatThisOneHasNotHad) {
  const ExpertLoads earlier = loads_of(100, {200, 40}, {80, 20}), own = loads_of(60, {60, 0}, {50, 0});
  const ExpertLoads joined = join_loads(earlier, own, 80);  // room for 20 steps, a fifth of the earlier ones
  EXPECT_EQ(joined.num_steps, 80);
  EXPECT_EQ(joined.rows, (std::vector<double>{100, 8}));
  EXPECT_EQ(joined.touched, (std::vector<double>{66, 4}));
  EXPECT_EQ(join_loads(earlier, own, 60).rows, own.rows) << "no room";
  EXPECT_EQ(join_loads(earlier, own, 1000).num_steps, 160) << "never more than there were";
  EXPECT_EQ(join_loads(std::nullopt, own, 1000).rows, own.rows);
}

TEST(FitLoads, TheLayerOfDraftsComesAndGoes) {
  const ExpertLoads plain = loads_of(4, {1, 2}, {1, 2});
  const ExpertLoads drafting = fit_loads(plain, {.num_layers = 1, .num_experts = 2, .has_drafts = true}, "f");
  EXPECT_EQ(drafting.num_layers, 2);
  EXPECT_EQ(drafting.rows, (std::vector<double>{1, 2, 0, 0}));
  const ExpertLoads again = fit_loads(drafting, {.num_layers = 1, .num_experts = 2}, "f");
  EXPECT_EQ(again.num_layers, 1);
  EXPECT_EQ(again.touched, plain.touched);
  test::expect_error([&] { fit_loads(plain, {.num_layers = 2, .num_experts = 2}, "f"); }, ErrorCode::kInvalidArgument,
                     {"f: loads of 1 layers with 2 experts", "the model's 2 (with drafts one more) with 2"});
  test::expect_error([&] { fit_loads(plain, {.num_layers = 1, .num_experts = 4}, "f"); }, ErrorCode::kInvalidArgument, {"4"});
}

/// Two experts on rank 0.
class ExpertRecordTest : public testing::Test {
 protected:
  static ExpertPlacement placement() {
    static const Rank alone[] = {{0}};
    return ExpertPlacement::contiguous(1, 2, alone);
  }

  test::TempFolder folder_;
  ExpertLoad load_{1, 2};
  ExpertRecord record_{placement(), load_};
};

TEST_F(ExpertRecordTest, StepsAddUp) {
  load_.add(0, 1, 3);
  record_.take(placement(), load_);
  record_.take(placement(), load_);  // nothing was computed meanwhile
  load_.add(0, 1, 2);
  record_.take(placement(), load_);
  EXPECT_EQ(record_.loads().num_steps, 2);
  EXPECT_EQ(record_.loads().rows, (std::vector<double>{0, 5}));
  EXPECT_EQ(record_.placed().placement->epoch(), 1U);
}

TEST_F(ExpertRecordTest, WhoHasPlacedExpertsIsKnownUntilTheyArePlacedAnew) {
  EXPECT_EQ(record_.placed().by, PlacedBy::kFerry);
  const Rank alone[] = {{0}};
  const std::vector<LayerPlacement> layers{{{{1}, {0}}}};
  const ExpertPlacement next(2, alone, 2, layers);
  record_.note_placement(next, PlacedBy::kHand);
  record_.take(next, load_);
  EXPECT_EQ(record_.placed().by, PlacedBy::kHand);
  EXPECT_EQ(record_.placed().placement->experts(0), layers[0]);
  record_.note_placement(placement(), PlacedBy::kFerry);
  EXPECT_EQ(record_.placed().by, PlacedBy::kFerry);
}

TEST_F(ExpertRecordTest, TheFileIsReadAndWrittenFromRunToRun) {
  const std::filesystem::path path = folder_.path() / "load.json";
  load_.add(0, 1, 3);
  record_.take(placement(), load_);
  {
    ExpertLoadFile file(path, {.num_layers = 1, .num_experts = 2});
    EXPECT_FALSE(file.earlier());
    EXPECT_FALSE(std::filesystem::exists(path)) << "nothing is known yet";
    file.follow(record_);
  }
  EXPECT_EQ(read_expert_load_file(path, 1, 2).rows, (std::vector<double>{0, 3}));
  {
    ExpertLoadFile file(path, {.num_layers = 1, .num_experts = 2});
    ASSERT_TRUE(file.earlier());
    file.follow(record_);
  }
  const ExpertLoads both = read_expert_load_file(path, 1, 2);
  EXPECT_EQ(both.num_steps, 2);
  EXPECT_EQ(both.rows, (std::vector<double>{0, 6}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1) << "a temporary file was left";
}

TEST_F(ExpertRecordTest, WrongFilesAndPlacesAreRefused) {
  const std::filesystem::path path = folder_.path() / "load.json";
  std::ofstream(path) << "{}";
  const auto open = [](const std::filesystem::path& file) {
    return [file] { const ExpertLoadFile opened(file, {.num_layers = 1, .num_experts = 2}); };
  };
  test::expect_error(open(path), ErrorCode::kInvalidArgument, {"load.json", "no format"});
  test::expect_error(open(folder_.path() / "nowhere" / "f"), ErrorCode::kFailedPrecondition, {"cannot write", "nowhere"});
}

}  // namespace
}  // namespace ferry
