#include "runtime/expert_holder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <thread>

#include "kernels/backend.h"
#include "moe/wire.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/checkpoint/checkpoint_packer.h"
#include "runtime/expert_witness.h"
#include "runtime/model/weights_loader.h"
#include "tests/support/damaged_tensor.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"

// How a rank comes to hold other experts while it goes on with those it has.

namespace ferry {
namespace {

constexpr int64_t kDemoLayers = 8;
const char* const kDemo = "launch/demo";

std::filesystem::path demo_folder() { return test::source_folder() / kDemo; }

/// The same of every layer.
RankExperts in_all_layers(const std::vector<LogicalExpertId>& experts) {
  return RankExperts(static_cast<std::size_t>(kDemoLayers), experts);
}
const RankExperts kFirst = in_all_layers({{0}, {1}, {2}, {3}});
const RankExperts kSecond = in_all_layers({{2}, {40}, {0}, {63}});  // two stay, in other places

/// What comes of `next`, which comes from another thread.
template <class Next>
auto await(Next&& next) {
  auto got = next();
  const auto has_come = [&] {
    if (!got) got = next();
    return got.has_value();
  };
  eventually(has_come, "what another thread makes ready");
  return got;
}

/// Of a rank that computes the demo on the CPU.
EngineOptions demo_options(std::optional<Quantization> quantization = {}) {
  EngineOptions options;
  options.model = demo_folder();
  options.dtype = DType::kBF16;
  options.device.kind = DeviceChoice::Kind::kCpu;
  options.threads = 1;
  options.token_budget = 64;
  options.quantization = std::move(quantization);
  return options;
}

/// The demo's experts.
struct DemoExperts {
  explicit DemoExperts(ExpertShelf::RequireMemory require_memory = {})
      : shelf(demo_options(), {.rank = Rank{1}}, std::move(require_memory)) {}

  std::shared_ptr<const ExpertBank> load(const RankExperts& experts) { return shelf.get_all(experts); }
  ExpertPreparer::Options with_canaries() {
    return {.dtype = DType::kBF16, .make_backend = [] { return select_backend("auto", "auto", DType::kBF16); }};
  }

  ExpertShelf shelf;
};

TEST(ExpertShelf, WhatSomebodyHoldsIsSharedAndWhatNobodyHoldsIsReadAgain) {
  DemoExperts demo;
  EXPECT_FALSE(demo.shelf.has(0, {5}));
  std::shared_ptr<const PackedExpert> held = demo.shelf.get(0, {5});
  EXPECT_TRUE(demo.shelf.has(0, {5}));
  EXPECT_EQ(demo.shelf.get(0, {5}), held);
  EXPECT_NE(demo.shelf.get(1, {5}), held);
  const std::weak_ptr<const PackedExpert> before = held;
  held.reset();
  EXPECT_TRUE(before.expired());
  EXPECT_FALSE(demo.shelf.has(0, {5}));
  EXPECT_NE(demo.shelf.get(0, {5}), nullptr);
  const std::shared_ptr<const ExpertBank> bank = demo.load(kFirst);
  EXPECT_EQ(demo.shelf.get(3, {2}), bank->expert(3, 2));
}

TEST(ExpertShelf, TwoWhoWantOneExpertAtOnceGetTheSame) {
  DemoExperts demo;
  for (int32_t e = 0; e < 16; ++e) {
    auto other = std::async(std::launch::async, [&] { return demo.shelf.get(0, {e}); });
    const std::shared_ptr<const PackedExpert> own = demo.shelf.get(0, {e});
    EXPECT_EQ(other.get(), own);
  }
}

ExpertPreparer::Prepared await_prepared(ExpertPreparer& preparer) {
  return await([&] { return preparer.take(); }).value_or(ExpertPreparer::Prepared{});
}

TEST(ExpertPreparer, WhatStaysIsSharedAndTheRestIsRead) {
  DemoExperts demo;
  const std::shared_ptr<const ExpertBank> held = demo.load(kFirst);
  ExpertPreparer preparer(demo.shelf, {.dtype = DType::kBF16, .make_backend = {}});
  EXPECT_FALSE(preparer.is_busy());
  preparer.begin({.epoch = 2, .experts = kSecond, .canaries = {}}, held, kFirst);
  EXPECT_TRUE(preparer.is_busy());
  const ExpertPreparer::Prepared prepared = await_prepared(preparer);
  EXPECT_FALSE(preparer.is_busy());
  EXPECT_FALSE(preparer.take()) << "once";
  ASSERT_NE(prepared.bank, nullptr);
  EXPECT_EQ(prepared.assignment.experts, kSecond);
  EXPECT_EQ(prepared.preparation.epoch, 2U);
  EXPECT_EQ(prepared.preparation.complaint, "");
  for (int64_t layer = 0; layer < kDemoLayers; ++layer) {
    ASSERT_EQ(prepared.bank->num_local_experts(layer), 4);
    EXPECT_EQ(prepared.bank->expert(layer, 0), held->expert(layer, 2));
    EXPECT_EQ(prepared.bank->expert(layer, 2), held->expert(layer, 0));
    for (const int64_t read : {1, 3}) {
      ASSERT_NE(prepared.bank->expert(layer, read), nullptr);
      for (int64_t e = 0; e < 4; ++e) EXPECT_NE(prepared.bank->expert(layer, read), held->expert(layer, e));
    }
  }
}

TEST(ExpertPreparer, AnExpertThatWasDamagedBeforeItIsReadIsRefused) {
  const test::TempFolder dir;
  const std::filesystem::path packed = dir.path() / "packed";
  const Quantization quantization = parse_quantization("experts=w8a8");
  ThreadPool pool(2);
  pack_checkpoint(demo_folder(), packed, quantized_matrices(demo_folder(), quantization), pool,
                  {.dtype = DType::kBF16, .quantization = quantization});
  EngineOptions options = demo_options();
  options.model = packed;
  ExpertShelf shelf(options, {.rank = Rank{1}});
  const std::shared_ptr<const ExpertBank> held = shelf.get_all(kFirst);
  const std::string name = "model.language_model.layers.3.mlp.experts.40.down_proj.panels";
  const std::filesystem::path weights = packed / "model-00001-of-00001.safetensors";
  test::flip_bit(weights, test::tensor_offset(weights, name, 17));
  ExpertPreparer preparer(shelf, {.dtype = DType::kBF16, .make_backend = {}});
  preparer.begin({.epoch = 2, .experts = kSecond, .canaries = {}}, held, kFirst);
  const ExpertPreparer::Prepared prepared = await_prepared(preparer);
  EXPECT_EQ(prepared.bank, nullptr);
  test::expect_one_line_with(prepared.preparation.complaint, {weights.string(), name, "is damaged"});
}

TEST(ExpertPreparer, CanariesAreEqualOnTwoRanksAndDifferByExpert) {
  DemoExperts one, two;
  const RankExperts asked = in_all_layers({{40}, {0}, {2}, {63}, {1}});  // some held then, one held now alone
  ExpertPreparer first(one.shelf, one.with_canaries()), second(two.shelf, two.with_canaries());
  first.begin({.epoch = 2, .experts = kSecond, .canaries = asked}, one.load(kFirst), kFirst);
  const RankExperts has_all = in_all_layers({{63}, {40}, {2}, {1}, {0}});
  second.begin({.epoch = 9, .experts = has_all, .canaries = asked}, two.load(has_all), has_all);
  const std::vector<uint64_t> canaries = await_prepared(first).preparation.canaries;
  EXPECT_EQ(canaries, await_prepared(second).preparation.canaries);
  ASSERT_EQ(canaries.size(), 5U * kDemoLayers);
  std::vector<uint64_t> sorted = canaries;
  std::ranges::sort(sorted);
  EXPECT_EQ(std::ranges::adjacent_find(sorted), sorted.end()) << "two experts that compute the same";
}

TEST(ExpertPreparer, AnotherAssignmentTakesThePlaceOfTheOneUnderWay) {
  DemoExperts demo;
  const std::shared_ptr<const ExpertBank> held = demo.load(kFirst);
  RankExperts last_moment = in_all_layers({});  // nothing is left to do behind its only canary
  last_moment[0] = {{2}};
  for (const RankExperts& canaries : {last_moment, in_all_layers({{2}})}) {
    std::promise<void> has_begun, may_go_on;
    std::atomic<int> num_backends{0};
    const auto make_backend = [&] {
      if (num_backends++ == 0) {
        has_begun.set_value();
        may_go_on.get_future().wait();
      }
      return select_backend("auto", "auto", DType::kBF16);
    };
    ExpertPreparer preparer(demo.shelf, {.dtype = DType::kBF16, .make_backend = make_backend});
    preparer.begin({.epoch = 2, .experts = kFirst, .canaries = canaries}, held, kFirst);
    has_begun.get_future().wait();
    preparer.begin({.epoch = 3, .experts = kSecond, .canaries = canaries}, held, kFirst);
    may_go_on.set_value();
    const ExpertPreparer::Prepared prepared = await_prepared(preparer);
    EXPECT_EQ(prepared.preparation.epoch, 3U);
    EXPECT_EQ(prepared.assignment.experts, kSecond);
    EXPECT_FALSE(preparer.is_busy());
    EXPECT_FALSE(preparer.take());
  }
}

TEST(ExpertPreparer, WhereRanksTakeTurnsItWorksWhenItIsAsked) {
  DemoExperts demo;
  const std::shared_ptr<const ExpertBank> held = demo.load(kFirst);
  ExpertPreparer::Options options = demo.with_canaries();
  bool is_its_turn = false;
  options.works_now = [&is_its_turn] { return is_its_turn; };
  ExpertPreparer preparer(demo.shelf, options);
  EXPECT_FALSE(preparer.take());
  preparer.begin({.epoch = 2, .experts = kFirst, .canaries = {}}, held, kFirst);
  preparer.begin({.epoch = 3, .experts = kSecond, .canaries = kSecond}, held, kFirst);
  EXPECT_FALSE(preparer.take()) << "not now";
  EXPECT_TRUE(preparer.is_busy());
  is_its_turn = true;
  const std::optional<ExpertPreparer::Prepared> prepared = preparer.take();
  ASSERT_TRUE(prepared);
  EXPECT_EQ(prepared->preparation.epoch, 3U) << "the last one counts";
  EXPECT_EQ(prepared->preparation.canaries.size(), 4U * kDemoLayers);
  EXPECT_EQ(prepared->bank->expert(0, 0), held->expert(0, 2));
  EXPECT_FALSE(preparer.is_busy());
  preparer.begin({.epoch = 4, .experts = kSecond, .canaries = {}}, held, kFirst);
  preparer.give_up();
  EXPECT_FALSE(preparer.is_busy());
  EXPECT_FALSE(preparer.take()) << "it was given up";
}

TEST(ExpertPreparer, WhatIsGivenUpIsNeverReady) {
  DemoExperts demo;
  const std::shared_ptr<const ExpertBank> held = demo.load(kFirst);
  ExpertPreparer preparer(demo.shelf, {.dtype = DType::kBF16, .make_backend = {}});
  preparer.begin({.epoch = 2, .experts = kSecond, .canaries = {}}, held, kFirst);
  preparer.give_up();
  EXPECT_FALSE(preparer.is_busy());
  EXPECT_FALSE(preparer.take());
  preparer.begin({.epoch = 3, .experts = kFirst, .canaries = {}}, held, kFirst);
  EXPECT_EQ(await_prepared(preparer).preparation.epoch, 3U);
}

TEST(ExpertPreparer, WhatCannotBeIsAComplaint) {
  DemoExperts demo([](int64_t bytes, const std::string& what) {
    if (bytes > 0) throw Error(ErrorCode::kResourceExhausted, "no room for " + what);
  });
  const ExpertLoader& loader = demo.shelf.loader();
  const auto held = std::make_shared<const ExpertBank>(kDemoLayers, 0, loader.dims(), loader.weight_type());
  const RankExperts none = in_all_layers({});
  ExpertPreparer preparer(demo.shelf, demo.with_canaries());
  preparer.begin({.epoch = 2, .experts = kFirst, .canaries = {}}, held, none);
  const ExpertPreparer::Prepared full = await_prepared(preparer);
  EXPECT_EQ(full.bank, nullptr);
  EXPECT_EQ(full.preparation.epoch, 2U);
  EXPECT_EQ(full.preparation.complaint, "no room for 32 more experts");
  preparer.begin({.epoch = 3, .experts = none, .canaries = in_all_layers({{5}})}, held, none);
  const ExpertPreparer::Prepared unknown = await_prepared(preparer);
  EXPECT_EQ(unknown.bank, nullptr);
  EXPECT_NE(unknown.preparation.complaint.find("expert 5 of layer 0"), std::string::npos) << unknown.preparation.complaint;
  preparer.begin({.epoch = 4, .experts = none, .canaries = {}}, held, none);
  EXPECT_NE(await_prepared(preparer).bank, nullptr) << "it goes on";
}

/// Of the demo's checkpoint. While `gate` is set, the witness's thread waits for it before it opens anything.
struct DemoWitness {
  ExpertWitness::Options options() {
    return {.dtype = DType::kBF16,
            .make_backend =
                [this] {
                  if (gate.valid()) gate.wait();
                  return select_backend("auto", "auto", DType::kBF16);
                },
            .make_loader =
                [this](Matmul& matmul) {
                  LoadOptions load =
                      make_load_options(demo_options(), DType::kBF16, demo.shelf.config(), checkpoint, demo.shelf.compute());
                  if (require_memory) load.require_memory = require_memory;
                  return std::make_unique<ExpertLoader>(checkpoint, demo.shelf.config(), matmul, std::move(load));
                }};
  }
  std::map<ExpertKey, uint64_t> await_songs(std::size_t count) {
    std::map<ExpertKey, uint64_t> songs;
    await([&] {
      for (const CanaryWitness::Song& song : witness.take()) EXPECT_TRUE(songs.emplace(song.key, song.canary).second);
      return songs.size() >= count ? std::optional(true) : std::nullopt;
    });
    return songs;
  }
  bool await_over() {
    return await([&] { return witness.is_over() ? std::optional(true) : std::nullopt; }).value_or(false);
  }

  DemoExperts demo;
  Checkpoint checkpoint = Checkpoint::open(demo_folder());
  std::shared_future<void> gate;
  ExpertShelf::RequireMemory require_memory;
  ExpertWitness witness{options()};
};

TEST(ExpertWitness, SingsWhatAWorkerSings) {
  DemoWitness demo;
  EXPECT_TRUE(demo.witness.is_over());
  ExpertPreparer preparer(demo.demo.shelf, demo.demo.with_canaries());
  const auto none = std::make_shared<const ExpertBank>(kDemoLayers, 0, demo.demo.shelf.loader().dims(),
                                                       demo.demo.shelf.loader().weight_type());
  preparer.begin({.epoch = 2, .experts = kSecond, .canaries = kSecond}, none, in_all_layers({}));
  std::vector<ExpertKey> keys;
  for (int64_t layer = 0; layer < kDemoLayers; ++layer) {
    for (const LogicalExpertId expert : kSecond[static_cast<std::size_t>(layer)]) keys.emplace_back(layer, expert.value);
  }
  demo.witness.begin(keys);
  const std::map<ExpertKey, uint64_t> songs = demo.await_songs(keys.size());
  const std::vector<uint64_t> told = await_prepared(preparer).preparation.canaries;
  ASSERT_EQ(told.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(songs.at(keys[i]), told[i]) << i;
  EXPECT_TRUE(demo.witness.is_over());
}

TEST(ExpertWitness, WhatIsGivenUpDoesNotCount) {
  DemoWitness demo;
  std::promise<void> opens;
  demo.gate = opens.get_future().share();
  demo.witness.begin({{0, 1}, {0, 2}});
  EXPECT_FALSE(demo.witness.is_over());
  demo.witness.give_up();
  EXPECT_TRUE(demo.witness.is_over());
  demo.witness.begin({{0, 3}});
  opens.set_value();
  EXPECT_TRUE(demo.await_songs(1).contains({0, 3}));
  EXPECT_TRUE(demo.witness.take().empty());
}

TEST(ExpertWitness, WhoCannotReadSaysNothingAndGoesOn) {
  DemoWitness demo;
  demo.require_memory = [](int64_t, const std::string& what) {
    throw Error(ErrorCode::kResourceExhausted, "no room for " + what);
  };
  demo.witness.begin({{0, 1}, {0, 2}});
  EXPECT_TRUE(demo.await_over());
  EXPECT_TRUE(demo.witness.take().empty());
  demo.witness.begin({{0, 64}});  // there is none
  EXPECT_TRUE(demo.await_over());
}

/// One that computes the demo on the CPU.
struct DemoHolder {
  explicit DemoHolder(std::optional<Quantization> quantization = {})
      : shelf(demo_options(std::move(quantization)), {.rank = Rank{1}}), holder(shelf) {}

  Preparation prepare(const Assignment& assignment) {
    holder.prepare(assignment);
    EXPECT_TRUE(holder.is_preparing());
    return await([&] { return holder.advance(); }).value_or(Preparation{});
  }

  /// The rows that come back from two tokens, each with half of the experts of a layer.
  std::string answer(int64_t layer) {
    const WorkerShape& shape = holder.shape();
    const int32_t num_local = shape.num_local_experts[static_cast<std::size_t>(layer)];
    const WireHeader header{.map_epoch = shape.map_epoch,
                            .layer = static_cast<int32_t>(layer),
                            .num_tokens = 2,
                            .num_rows = num_local,
                            .num_local_experts = num_local,
                            .hidden_dim = static_cast<int32_t>(shape.hidden_dim),
                            .dtype = shape.dtype,
                            .token_dtype = shape.token_dtype,
                            .combine = shape.combine};
    AlignedBuffer request(static_cast<std::size_t>(request_bytes(header)));
    const std::span<std::byte> message(request.data(), request.size());
    std::memset(request.data(), 0, request.size());
    const RequestParts parts = lay_out_request(header, message);
    for (int32_t e = 0; e < num_local; ++e) {
      parts.expert_counts[e] = 1;
      parts.row_token[e] = e % 2;
    }
    for (int64_t t = 0; t < 2; ++t) {
      if (parts.scales != nullptr) parts.scales[t] = 0.01F;
      for (int64_t i = 0; i < shape.hidden_dim; ++i) {
        const auto value = static_cast<int8_t>((i * 37 + t * 11 + layer) % 251 - 125);
        if (shape.token_dtype == DType::kI8) {
          reinterpret_cast<int8_t*>(parts.tokens.row_bytes(t))[i] = value;
        } else {
          parts.tokens.row<bfloat16>(t)[i] = to_bfloat16(0.01F * value);
        }
      }
    }
    write_header(header, message);
    AlignedBuffer reply(static_cast<std::size_t>(max_reply_bytes(shape)));
    holder.answer(parse_request(message, shape), {reply.data(), reply.size()});
    const MatrixView rows = lay_out_reply(header, {reply.data(), reply.size()});
    EXPECT_EQ(rows.rows, num_local);
    return {reinterpret_cast<const char*>(rows.data),
            static_cast<std::size_t>(rows.rows * rows.cols * dtype_bytes(rows.dtype))};
  }
  std::string answers() {
    std::string all;
    for (int64_t layer = 0; layer < kDemoLayers; ++layer) all += answer(layer);
    return all;
  }

  ExpertShelf shelf;
  ExpertHolder holder;
};

TEST(ExpertHolder, AnswersAfterHavingGoneOverAsIfItHadHeldAllFromTheStart) {
  for (const auto& quantization : {std::optional<Quantization>{}, std::optional(parse_quantization("w8a8"))}) {
    DemoHolder changed(quantization), fresh(quantization);
    changed.holder.hold({.epoch = 1, .experts = kFirst, .canaries = {}});
    fresh.holder.hold({.epoch = 2, .experts = kSecond, .canaries = {}});
    const std::string before = changed.answers();
    const Preparation told = changed.prepare({.epoch = 2, .experts = kSecond, .canaries = in_all_layers({{40}})});
    EXPECT_EQ(told.epoch, 2U);
    EXPECT_EQ(told.complaint, "");
    EXPECT_EQ(told.canaries.size(), static_cast<std::size_t>(kDemoLayers));
    EXPECT_FALSE(changed.holder.is_preparing());
    EXPECT_TRUE(changed.answers() == before) << "until the coordinator goes over it holds what it held";
    changed.holder.go_over(2);
    EXPECT_EQ(changed.holder.shape().map_epoch, 2U);
    const std::string after = changed.answers();
    EXPECT_TRUE(after == fresh.answers());
    EXPECT_FALSE(after == before);
  }
}

TEST(ExpertHolder, GoesOverWithTheEpochThatItHasToldAlone) {
  DemoHolder demo;
  demo.holder.hold({.epoch = 1, .experts = kFirst, .canaries = {}});
  demo.holder.prepare({.epoch = 2, .experts = kSecond, .canaries = {}});
  demo.holder.go_over(2);
  EXPECT_EQ(demo.holder.shape().map_epoch, 1U) << "it has not said that it is ready";
  EXPECT_EQ(await([&] { return demo.holder.advance(); }).value_or(Preparation{}).epoch, 2U);
  for (const uint32_t other : {0U, 1U, 3U}) demo.holder.go_over(other);
  EXPECT_EQ(demo.holder.shape().map_epoch, 1U);
  // Another one takes its place: then the first is no more to be gone over to.
  EXPECT_EQ(demo.prepare({.epoch = 3, .experts = in_all_layers({{7}}), .canaries = {}}).epoch, 3U);
  demo.holder.go_over(2);
  EXPECT_EQ(demo.holder.shape().map_epoch, 1U);
  demo.holder.go_over(3);
  EXPECT_EQ(demo.holder.shape().map_epoch, 3U);
  EXPECT_EQ(demo.holder.shape().num_local_experts, std::vector<int32_t>(kDemoLayers, 1));
  demo.holder.go_over(3);
  EXPECT_EQ(demo.holder.shape().num_local_experts, std::vector<int32_t>(kDemoLayers, 1));
}

TEST(ExpertHolder, WhatItCannotSingIsAComplaintAndItGoesOn) {
  DemoHolder demo;
  demo.holder.hold({.epoch = 1, .experts = kFirst, .canaries = {}});
  const std::string before = demo.answers();
  const Preparation told = demo.prepare({.epoch = 2, .experts = kFirst, .canaries = in_all_layers({{50}})});
  EXPECT_EQ(told.epoch, 2U);
  EXPECT_NE(told.complaint.find("expert 50 of layer 0"), std::string::npos) << told.complaint;
  EXPECT_FALSE(demo.holder.is_preparing());
  demo.holder.go_over(2);
  EXPECT_EQ(demo.holder.shape().map_epoch, 1U);
  EXPECT_TRUE(demo.answers() == before);
}

TEST(ExpertHolder, ForAnotherCoordinatorItKeepsWhatItHoldsAndBeginsAnew) {
  DemoHolder demo;
  demo.holder.hold({.epoch = 7, .experts = kFirst, .canaries = {}});
  const std::string before = demo.answers();
  demo.prepare({.epoch = 8, .experts = kSecond, .canaries = {}});
  demo.holder.begin_anew();
  EXPECT_EQ(demo.holder.shape().map_epoch, 0U);
  demo.holder.go_over(8);
  EXPECT_EQ(demo.holder.shape().map_epoch, 0U) << "of the coordinator before";
  EXPECT_TRUE(demo.answers() == before);
  EXPECT_EQ(demo.prepare({.epoch = 1, .experts = kFirst, .canaries = in_all_layers({{1}})}).complaint, "");
  demo.holder.go_over(1);
  EXPECT_TRUE(demo.answers() == before);
}

TEST(ExpertHolder, AnyAssignmentFitsItsLargestMessages) {
  DemoHolder demo;
  EXPECT_EQ(demo.holder.shape().num_local_experts, std::vector<int32_t>(kDemoLayers, 0)) << "it holds nothing yet";
  const WorkerShape largest = demo.holder.largest_shape();
  std::vector<LogicalExpertId> all;
  for (int32_t e = 0; e < 64; ++e) all.push_back({e});
  demo.prepare({.epoch = 1, .experts = in_all_layers(all), .canaries = {}});
  demo.holder.go_over(1);
  EXPECT_EQ(demo.holder.shape().max_local_experts(), 64);
  EXPECT_LE(max_request_bytes(demo.holder.shape()), max_request_bytes(largest));
  EXPECT_LE(max_reply_bytes(demo.holder.shape()), max_reply_bytes(largest));
}

}  // namespace
}  // namespace ferry
