#include "runtime/elastic/instructions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/expert_shelf.h"
#include "runtime/rank_setup.h"
#include "tests/support/expect_error.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

/// Of a rank that computes on the CPU with what comes with Ferry.
EngineOptions worker_options() {
  EngineOptions options;
  options.model = test::source_folder() / "launch/demo";
  options.device.kind = DeviceChoice::Kind::kCpu;
  options.threads = 1;
  return options;
}

Cluster::Terms terms_of(const EngineOptions& options) { return ExpertShelf(options, {.rank = Rank{1}}).terms(); }

/// What a worker with `own` options works by when it joins a coordinator with `options`.
EngineOptions followed(const EngineOptions& own, const EngineOptions& options) {
  return follow_instructions(own, make_instructions(terms_of(options), options));
}

TEST(Instructions, OptionsOfTheCoordinatorArriveAtTheWorker) {
  EngineOptions options = worker_options();
  options.dtype = DType::kF32;
  options.token_budget = 777;
  options.combine = CombineMode::kFast;
  options.quantization = parse_quantization("w8a8");
  options.peer_timeout_s = 12.5;
  options.kernels = "ref";
  EngineOptions own = worker_options();
  own.threads = 3;
  own.max_seqs = 5;
  own.check_weights = true;
  const EngineOptions got = followed(own, options);
  EXPECT_EQ(got.dtype, DType::kF32);
  EXPECT_EQ(got.token_budget, 777);
  EXPECT_EQ(got.combine, CombineMode::kFast);
  EXPECT_EQ(got.quantization, options.quantization);
  EXPECT_EQ(got.peer_timeout_s, 12.5);
  EXPECT_EQ(got.kernels, "ref");
  EXPECT_EQ(got.speculation, Speculation{}) << "the coordinator loads no MTP layer";
  EXPECT_EQ(got.model, own.model);
  EXPECT_EQ(got.threads, 3);
  EXPECT_EQ(got.max_seqs, 5);
  EXPECT_TRUE(got.check_weights);
}

TEST(Instructions, WhatTheWorkerWasToldBeforeDoesNotCount) {
  EngineOptions own = worker_options();
  own.dtype = DType::kF32;
  own.token_budget = 100;
  own.combine = CombineMode::kFast;
  own.quantization = parse_quantization("w8a8");
  own.peer_timeout_s = 1;
  const EngineOptions options = worker_options();
  const EngineOptions got = followed(own, options);
  EXPECT_EQ(got.dtype, DType::kBF16) << "the checkpoint's";
  EXPECT_EQ(got.token_budget, options.token_budget);
  EXPECT_EQ(got.combine, CombineMode::kExact);
  EXPECT_EQ(got.peer_timeout_s, options.peer_timeout_s);
  EXPECT_EQ(check_instructions(make_instructions(terms_of(options), options), terms_of(got), Rank{1}), "");
}

TEST(Instructions, WhoFollowsThemHasTheCoordinatorsTerms) {
  std::vector<EngineOptions> all(4, worker_options());
  all[1].quantization = parse_quantization("experts=w4a8:32");
  all[1].dtype = DType::kF32;
  all[2].speculation = {Speculation::Source::kAuto, 0};
  all[2].combine = CombineMode::kFast;
  all[3].speculation = {Speculation::Source::kMtp, 2};
  all[3].token_budget = 64;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<Term> instructions = make_instructions(terms_of(all[i]), all[i]);
    const bool has_mtp = std::ranges::find(instructions, Term{kHasMtpTerm}) != instructions.end();
    EXPECT_EQ(has_mtp, i >= 2);
    const EngineOptions got = follow_instructions(worker_options(), instructions);
    EXPECT_EQ(got.speculation.source == Speculation::Source::kAuto, has_mtp) << i;
    EXPECT_EQ(check_instructions(instructions, terms_of(got), Rank{1}), "") << i;
  }
}

TEST(Instructions, LinesThatMayDifferOrAreNoOptionsAreNotTaken) {
  const EngineOptions own = worker_options();
  const EngineOptions got = follow_instructions(own, {{"--combine fast", /*may_differ=*/true},
                                                      {"--device vulkan (something)", /*may_differ=*/true},
                                                      {"a config.json with 3 layers"},
                                                      {"--check-weights"},
                                                      {""},
                                                      {"--token-budget 300"}});
  EXPECT_EQ(got.combine, own.combine);
  EXPECT_EQ(got.device.kind, own.device.kind);
  EXPECT_FALSE(got.check_weights);
  EXPECT_EQ(got.token_budget, 300);
}

TEST(Instructions, KernelsOfTheCpuAreTakenByThoseWhoComputeOnIt) {
  for (const auto kind : {DeviceChoice::Kind::kCpu, DeviceChoice::Kind::kVulkan}) {
    EngineOptions own = worker_options();
    own.device.kind = kind;
    const EngineOptions got = follow_instructions(own, {{"--kernels ref"}, {"--matmul ref"}, {"--dtype f32"}});
    const std::string expected = kind == DeviceChoice::Kind::kCpu ? "ref" : "auto";
    EXPECT_EQ(got.kernels, expected);
    EXPECT_EQ(got.matmul, expected);
    EXPECT_EQ(got.dtype, DType::kF32);
  }
}

TEST(Instructions, NonsenseIsRefused) {
  for (const char* line : {"--dtype f64", "--token-budget many", "--token-budget -1", "--no-such-option 3", "--dtype ",
                           "--fault kill:1@step=3", "--device vulkan:0", "--threads 512", "--check-weights true",
                           "--memory 1GiB", "--expert-load /tmp/file", "--trace /tmp/folder", "--model /tmp/model"}) {
    test::expect_error(
        [&] {
          follow_instructions(worker_options(), {{"--combine fast"}, {line}});
        },
        ErrorCode::kInvalidArgument, {"the coordinator works by what this rank cannot"});
  }
}

TEST(Instructions, OtherTermsAreRefusedUnlessTheyMayDiffer) {
  const EngineOptions options = worker_options();
  const std::vector<Term> instructions = make_instructions({{"--dtype bf16"}, {"--matmul own"}}, options);
  EXPECT_EQ(check_instructions(instructions, {{"--dtype bf16"}, {"--matmul own"}}, Rank{1}), "");
  test::expect_error(
      [&] {
        check_instructions(instructions, {{"--dtype f32"}, {"--matmul own"}}, Rank{1});
      },
      ErrorCode::kInvalidArgument, {"--dtype f32", "--dtype bf16"});
  test::expect_error(
      [&] {
        check_instructions(instructions, {{"--dtype bf16"}, {"--matmul ref"}}, Rank{2});
      },
      ErrorCode::kInvalidArgument, {"rank 2", "--matmul ref", "--matmul own"});
  const std::string difference =
      check_instructions(instructions, {{"--dtype bf16"}, {"--device vulkan (one)", /*may_differ=*/true}}, Rank{3});
  test::expect_one_line_with(difference, {"rank 3 has --device vulkan (one)", "--matmul own"});
}

}  // namespace
}  // namespace ferry
