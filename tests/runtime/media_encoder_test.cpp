#include "runtime/media_encoder.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/backend.h"
#include "tests/runtime/vision/drawn_picture.h"
#include "tests/support/compare.h"
#include "tests/support/one_choice_each.h"

// Pictures of sequences that wait, through a small tower with random weights.

namespace ferry {
namespace {

using test::all_close;
using Media = std::vector<std::shared_ptr<const Medium>>;

constexpr VisionTokens kTokens{.image = 90, .video = 91, .vision_start = 80, .vision_end = 81};
constexpr VisionPlan kPlan{.depth = 12,
                           .hidden_dim = 16,
                           .intermediate_dim = 24,
                           .num_heads = 2,
                           .patch_size = 2,
                           .temporal_patch_size = 2,
                           .merge_size = 2,
                           .position_side = 4,
                           .out_hidden_dim = 8,
                           .rope_theta = 10000};
constexpr PictureProcessor kProcessor{.patch_size = 2, .merge_size = 2, .min_pixels = 16};
constexpr int64_t kMaxPatches = 1024;
constexpr int kParts = 3;                        // of a block of so few rows: before, in and behind attention
constexpr int kPartsOfASlice = kParts * 12 / 2;  // half of a picture

struct RandomTower {
  RandomTower() {
    weights.patch_embed = linear(kPlan.hidden_dim, kPlan.patch_cols());
    weights.pos_embed = values(kPlan.position_side * kPlan.position_side * kPlan.hidden_dim);
    for (int64_t b = 0; b < kPlan.depth; ++b) {
      weights.blocks.push_back({.norm1 = norm(),
                                .qkv = linear(3 * kPlan.hidden_dim, kPlan.hidden_dim),
                                .proj = linear(kPlan.hidden_dim, kPlan.hidden_dim),
                                .norm2 = norm(),
                                .linear_fc1 = linear(kPlan.intermediate_dim, kPlan.hidden_dim),
                                .linear_fc2 = linear(kPlan.hidden_dim, kPlan.intermediate_dim)});
    }
    weights.merger_norm = norm();
    weights.merger_fc1 = linear(kPlan.merged_dim(), kPlan.merged_dim());
    weights.merger_fc2 = linear(kPlan.out_hidden_dim, kPlan.merged_dim());
  }

  std::vector<float> values(int64_t count) {
    std::normal_distribution<float> normal(0.0F, 0.3F);
    std::vector<float> made(static_cast<std::size_t>(count));
    for (float& value : made) value = normal(random);
    return made;
  }
  Array<float> array(int64_t count) { return {host_memory(), std::span<const float>(values(count))}; }
  LinearWeights linear(int64_t out, int64_t in) {
    const std::vector<float> made = values(out * in);
    return {.weight = backend.matmul().pack({reinterpret_cast<const std::byte*>(made.data()), DType::kF32, out, in, in}),
            .bias = array(out)};
  }
  LayerNormWeights norm() { return {.weight = array(kPlan.hidden_dim), .bias = array(kPlan.hidden_dim)}; }

  /// All patches in one call, with buffers for all of them.
  Matrix embed(const Medium& medium) {
    const Patches patches = reader.patches_of(medium, 0, medium.grid.t);
    const int64_t rows = patches.grid.num_patches(), cols = kPlan.patch_cols();
    VisionTower tower(kPlan, weights, stream, DType::kF32, {.max_patches = rows});
    Matrix out(DType::kF32, rows / kPlan.merged_patches(), kPlan.out_hidden_dim);
    tower.forward({reinterpret_cast<const std::byte*>(patches.values.data()), DType::kF32, rows, cols, cols},
                  {&patches.grid, 1}, out.view());
    return out;
  }

  std::mt19937 random{17};
  ThreadPool pool{2};
  Backend backend = select_backend("auto", "auto", DType::kF32);
  Stream stream{backend, pool};
  MediumReader reader{kProcessor, {.frames = kProcessor}, {}};
  VisionWeights weights;
};

RandomTower& tower() {
  static RandomTower made;
  return made;
}

/// `grid` patches with pixels that no other medium of the tests has.
std::shared_ptr<const Medium> medium_of(const Grid& grid, int64_t shift, Medium::Kind kind = Medium::Kind::kPicture) {
  Medium medium{.kind = kind, .grid = grid};
  medium.times.resize(kind == Medium::Kind::kVideo ? static_cast<std::size_t>(grid.t) : 0);
  const int64_t num_frames = kind == Medium::Kind::kVideo ? 2 * grid.t : 1;
  for (int64_t f = 0; f < num_frames; ++f) medium.frames.push_back(test::drawn_picture(2 * grid.h, 2 * grid.w, shift + 3 * f));
  medium.digest = {static_cast<std::byte>(shift), static_cast<std::byte>(kind), static_cast<std::byte>(grid.t)};
  return std::make_shared<const Medium>(std::move(medium));
}

std::shared_ptr<const Medium> video_of(const Grid& grid, int64_t shift) { return medium_of(grid, shift, Medium::Kind::kVideo); }

class MediaEncoderTest : public testing::Test {
 protected:
  explicit MediaEncoderTest(int64_t cache_bytes = 1 << 20)
      : encoder_(tower().reader, kPlan, tower().weights, tower().stream, DType::kF32,
                 {.max_patches = kMaxPatches, .cache_bytes = cache_bytes}) {}

  static SchedulerOptions options() {
    return {.token_budget = 5000, .num_blocks = 10000, .max_context = 100000, .vocab_size = 100};
  }

  Sequence& submit(const Media& media) {
    Request request;
    for (const auto& medium : media)
      request.prompt.push_back(medium->kind == Medium::Kind::kVideo ? kTokens.video : kTokens.image);
    MediaPrompt prompt =
        place_media(request.prompt, media, kTokens, 2, [](std::string_view) { return std::vector<TokenId>{5}; });
    request.prompt = std::move(prompt.ids);
    request.media = std::move(prompt.media);
    request.sampling.max_tokens = 1;
    return *scheduler_.add(std::move(request), {});
  }

  /// A plan and its rows, if it has any.
  void run_step() {
    const StepPlan& plan = scheduler_.plan({});
    scheduler_.commit(plan, test::OneChoiceEach(std::vector<TokenId>(static_cast<std::size_t>(plan.num_samples), 1)), {});
  }

  /// A slice of `num_parts` parts of blocks.
  void advance(int num_parts = kPartsOfASlice) {
    encoder_.advance(scheduler_, [num_left = num_parts]() mutable { return --num_left <= 0; });
  }

  /// How many slices it takes until the sequence has its media.
  int num_slices(const Sequence& sequence, int num_parts = kPartsOfASlice) {
    run_step();
    int num_slices = 0;
    while (sequence.waits_for_media() && num_slices < 1000) {
      advance(num_parts);
      ++num_slices;
    }
    return num_slices;
  }

  static void expect_embedded(const Media& media, const Sequence& sequence) {
    ASSERT_NE(nullptr, sequence.media);
    EXPECT_EQ(sequence.request.media, sequence.media->prompt);
    ASSERT_EQ(media.size(), sequence.media->embeddings.size());
    for (std::size_t m = 0; m < media.size(); ++m) {
      EXPECT_TRUE(all_close(sequence.media->embeddings[m]->view(), std::as_const(whole_).at(media[m]).view(), test::kExact))
          << "medium " << m;
    }
  }
  static void know(const Media& media) {
    for (const auto& medium : media)
      if (!whole_.contains(medium)) whole_.emplace(medium, tower().embed(*medium));
  }

  static std::map<std::shared_ptr<const Medium>, Matrix> whole_;
  Scheduler scheduler_{options()};
  MediaEncoder encoder_;
};

std::map<std::shared_ptr<const Medium>, Matrix> MediaEncoderTest::whole_;

TEST_F(MediaEncoderTest, SlicesChangeNoBit) {
  const Media media{medium_of({1, 8, 12}, 1), video_of({3, 8, 8}, 2), medium_of({1, 32, 32}, 3), video_of({7, 16, 20}, 4),
                    medium_of({1, 2, 2}, 5)};
  know(media);
  for (const int num_parts : {1, 2, 7, kPartsOfASlice, 100000}) {
    MediaEncoder fresh(tower().reader, kPlan, tower().weights, tower().stream, DType::kF32,
                       {.max_patches = kMaxPatches, .cache_bytes = 1 << 20});
    Sequence& sequence = submit(media);
    run_step();
    int num_slices = 0;
    for (; sequence.waits_for_media() && num_slices < 1000; ++num_slices)
      fresh.advance(scheduler_, [num_left = num_parts]() mutable { return --num_left <= 0; });
    EXPECT_EQ(num_slices > 1, num_parts < 100000) << num_parts;
    expect_embedded(media, sequence);
  }
}

TEST_F(MediaEncoderTest, APictureMayTakeSeveralSlices) {
  const Media media{medium_of({1, 32, 32}, 6)};
  know(media);
  const Sequence& sequence = submit(media);
  EXPECT_EQ(2, num_slices(sequence));
  expect_embedded(media, sequence);
}

TEST_F(MediaEncoderTest, ASliceMayBeOverAfterAPart) {
  const Media media{medium_of({1, 32, 32}, 20), video_of({7, 16, 20}, 21)};  // which passes the tower in three pieces
  know(media);
  const Sequence& sequence = submit(media);
  EXPECT_NEAR(num_slices(sequence, 1), 4 * kParts * kPlan.depth, 4) << "the last part of a medium is no end of a slice";
  expect_embedded(media, sequence);
}

TEST_F(MediaEncoderTest, WhatCameBeforeTakesNoWork) {
  const Media media{medium_of({1, 32, 32}, 7), video_of({6, 16, 20}, 8), medium_of({1, 32, 32}, 9)};
  know(media);
  EXPECT_GT(num_slices(submit(media)), 4);
  const Sequence& again = submit(media);
  EXPECT_EQ(1, num_slices(again)) << "whatever their size";
  expect_embedded(media, again);
  const Media turned{media[2], media[0], media[2]};
  const Sequence& other = submit(turned);
  EXPECT_EQ(1, num_slices(other));
  expect_embedded(turned, other);
}

class UncachedMediaEncoderTest : public MediaEncoderTest {
 protected:
  UncachedMediaEncoderTest() : MediaEncoderTest(0) {}
};

TEST_F(UncachedMediaEncoderTest, WorksAgain) {
  const Media media{medium_of({1, 32, 32}, 10)};
  know(media);
  for (int i = 0; i < 2; ++i) {
    const Sequence& sequence = submit(media);
    EXPECT_EQ(2, num_slices(sequence));
    expect_embedded(media, sequence);
  }
}

TEST_F(MediaEncoderTest, WhoeverLeavesInTheMiddleSpoilsNothing) {
  const Media lost{medium_of({1, 8, 12}, 11), video_of({7, 16, 20}, 12)}, next{medium_of({1, 16, 20}, 13)};
  know(lost);
  know(next);
  Sequence& leaves = submit(lost);
  const Sequence& stays = submit(next);
  run_step();
  advance();
  advance();
  EXPECT_TRUE(leaves.waits_for_media());
  EXPECT_TRUE(stays.waits_for_media());
  scheduler_.abort(leaves);
  EXPECT_EQ(2, num_slices(stays));
  expect_embedded(next, stays);
  const Sequence& returns = submit(lost);
  EXPECT_GT(num_slices(returns), 2);
  expect_embedded(lost, returns);
}

TEST_F(MediaEncoderTest, NobodyIsLeftAndThenTheSameComes) {
  const Media media{video_of({7, 16, 20}, 14)};
  know(media);
  Sequence& leaves = submit(media);
  run_step();
  advance();
  scheduler_.abort(leaves);
  run_step();
  const std::weak_ptr<const PromptMedia> let_go = leaves.request.media;
  scheduler_.take_finished();
  advance();
  EXPECT_TRUE(let_go.expired());
  const Sequence& returns = submit(media);
  EXPECT_GE(num_slices(returns), 3) << "what was begun is forgotten";
  expect_embedded(media, returns);
}

TEST_F(MediaEncoderTest, LetsGoOfWhoLeftAtOnce) {
  Sequence& leaves = submit({video_of({7, 16, 20}, 19)});
  run_step();
  advance();
  encoder_.let_go(scheduler_);
  EXPECT_TRUE(leaves.waits_for_media());
  const std::weak_ptr<const PromptMedia> prompt = leaves.request.media;
  scheduler_.abort(leaves);
  run_step();
  scheduler_.take_finished();
  EXPECT_FALSE(prompt.expired()) << "the encoder has it in hand";
  encoder_.let_go(scheduler_);
  EXPECT_TRUE(prompt.expired());
}

// The first sequence's picture is half way through the tower when it leaves.
TEST_F(MediaEncoderTest, TheNextHasThePictureOfWhoLeft) {
  const Media first{medium_of({1, 32, 32}, 15)}, second{medium_of({1, 2, 2}, 16), first[0]};
  know(second);
  Sequence& leaves = submit(first);
  const Sequence& stays = submit(second);
  run_step();
  advance();
  scheduler_.abort(leaves);
  num_slices(stays);
  expect_embedded(second, stays);
}

TEST_F(MediaEncoderTest, ServesInOrderOfAdmission) {
  const Media first{medium_of({1, 32, 32}, 17)}, second{medium_of({1, 2, 2}, 18)};
  know(first);
  know(second);
  const Sequence &a = submit(first), &b = submit(second);
  run_step();
  advance();
  EXPECT_TRUE(a.waits_for_media() && b.waits_for_media());
  advance();
  EXPECT_FALSE(a.waits_for_media());
  EXPECT_TRUE(b.waits_for_media());
  EXPECT_EQ(2, num_slices(b));
  expect_embedded(first, a);
  expect_embedded(second, b);
}

TEST_F(MediaEncoderTest, DoesNothingForText) {
  Request request;
  request.prompt = {1};
  const Sequence& sequence = *scheduler_.add(std::move(request), {});
  run_step();
  advance();
  EXPECT_EQ(nullptr, sequence.media);
}

TEST(MediaEncoder, MemoryIsThatOfItsParts) {
  const auto bytes = [](int64_t max_patches, int64_t cache_bytes) {
    return MediaEncoder::max_bytes(kPlan, DType::kF32, {.max_patches = max_patches, .cache_bytes = cache_bytes});
  };
  EXPECT_EQ(bytes(64, 0) + 1000, bytes(64, 1000));
  EXPECT_GE(bytes(128, 0) - bytes(64, 0), 64 * kPlan.patch_cols() * 4);
}

MediumDigest digest_of(int number) { return {static_cast<std::byte>(number)}; }
std::shared_ptr<const Matrix> matrix_of(int64_t num_bytes) { return std::make_shared<Matrix>(DType::kF32, 1, num_bytes / 4); }

TEST(MediaCache, DropsTheLeastRecentlyUsed) {
  MediaCache cache(100);
  const auto one = matrix_of(40), two = matrix_of(40), three = matrix_of(40);
  EXPECT_EQ(nullptr, cache.find(digest_of(1)));
  cache.add(digest_of(1), one);
  cache.add(digest_of(2), two);
  EXPECT_EQ(80, cache.num_bytes());
  EXPECT_EQ(one, cache.find(digest_of(1)));
  cache.add(digest_of(3), three);
  EXPECT_EQ(80, cache.num_bytes());
  EXPECT_EQ(nullptr, cache.find(digest_of(2)));
  EXPECT_EQ(one, cache.find(digest_of(1)));
  EXPECT_EQ(three, cache.find(digest_of(3)));
  cache.add(digest_of(4), matrix_of(100));
  EXPECT_EQ(100, cache.num_bytes());
  EXPECT_EQ(nullptr, cache.find(digest_of(1)));
  EXPECT_EQ(nullptr, cache.find(digest_of(3)));
}

TEST(MediaCache, WhatIsLargerThanAllIsNotKept) {
  MediaCache cache(100), none(0);
  const auto one = matrix_of(40);
  cache.add(digest_of(1), one);
  cache.add(digest_of(2), matrix_of(104));
  EXPECT_EQ(nullptr, cache.find(digest_of(2)));
  EXPECT_EQ(one, cache.find(digest_of(1))) << "and drops nothing";
  none.add(digest_of(1), one);
  EXPECT_EQ(0, none.num_bytes());
  EXPECT_EQ(nullptr, none.find(digest_of(1)));
}

TEST(MediaCache, TheSameTwiceIsKeptOnce) {
  MediaCache cache(100);
  const auto one = matrix_of(40);
  cache.add(digest_of(1), one);
  cache.add(digest_of(1), matrix_of(40));
  EXPECT_EQ(40, cache.num_bytes());
  EXPECT_EQ(one, cache.find(digest_of(1)));
}

}  // namespace
}  // namespace ferry
