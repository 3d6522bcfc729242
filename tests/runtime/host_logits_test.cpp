#include "runtime/host_logits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "runtime/engine.h"
#include "tests/support/apart_device.h"
#include "tests/support/listed_device.h"
#include "tests/support/source_folder.h"
#include "tests/support/test_stream.h"

namespace ferry {
namespace {

constexpr int64_t kRows = 9, kVocab = 1000;
constexpr int32_t kEffective = 990;

/// Of row r the highest logit is at column 100 + r, but for padding.
Matrix made_logits() {
  std::mt19937 engine(1);
  Matrix logits(DType::kBF16, kRows, kVocab);
  for (int64_t r = 0; r < kRows; ++r) {
    bfloat16* row = logits.view().row<bfloat16>(r);
    for (int64_t c = 0; c < kVocab; ++c) row[c] = to_bfloat16(static_cast<float>(engine() % 1000) * -0.001F);
    row[100 + r] = to_bfloat16(1.0F);
    row[kEffective] = to_bfloat16(2.0F);
  }
  return logits;
}

HostLogits::Options options() {
  return {.dtype = DType::kBF16, .max_rows = kRows + 2, .vocab_size = kVocab, .vocab_size_effective = kEffective};
}

std::string bytes_of(ConstMatrixView rows) {
  std::string bytes;
  for (int64_t r = 0; r < rows.rows; ++r)
    bytes.append(reinterpret_cast<const char*>(rows.row_bytes(r)), static_cast<std::size_t>(rows.cols) * 2);
  return bytes;
}

/// Looks at `logits`, which are `expected`, in all ways.
void expect_looks(HostLogits& look, ConstMatrixView logits, ConstMatrixView expected) {
  look.set(logits);
  ASSERT_EQ(look.num_rows(), kRows);
  for (const int64_t row : {0, 4, 8}) look.want_token(row);
  for (const int64_t row : {1, 2, 5}) look.want_values(row);
  look.fetch();
  for (const int64_t row : {0, 4, 8}) EXPECT_EQ(look.token(row), 100 + row);
  for (const int64_t row : {1, 2, 5}) {
    EXPECT_EQ(look.values(row).cols, kEffective);
    EXPECT_EQ(bytes_of(look.values(row)), bytes_of(expected.rows_from(row, 1).cols_from(0, kEffective)));
  }
  EXPECT_EQ(bytes_of(look.all_values()), bytes_of(expected));
  const std::span<const TokenId> tokens = look.all_tokens();
  ASSERT_EQ(std::ssize(tokens), kRows);
  for (int64_t row = 0; row < kRows; ++row) EXPECT_EQ(tokens[static_cast<std::size_t>(row)], 100 + row);
  look.set(logits.rows_from(3, 1));  // a smaller step behind a larger one
  look.want_token(0);
  look.fetch();
  EXPECT_EQ(look.token(0), 103);
  look.set(logits.rows_from(0, 0));
  EXPECT_TRUE(look.all_tokens().empty());
  EXPECT_EQ(look.all_values().rows, 0);
}

TEST(HostLogits, GiveWhatIsWantedWhereMemoryIsShared) {
  test::TestStream stream(2);
  const Matrix logits = made_logits();
  HostLogits look(stream, options());
  expect_looks(look, logits.view(), logits.view());
}

TEST(HostLogits, GiveWhatIsWantedOfADevice) {
  ThreadPool pool(2);
  test::ApartDevice device(DType::kBF16);
  test::ApartStream stream(device, pool);
  const Matrix expected = made_logits();
  Matrix logits(device.memory(), DType::kBF16, kRows, kVocab);
  copy_rows(stream, expected.view(), logits.view());
  HostLogits look(stream, options());
  expect_looks(look, logits.view(), expected.view());
}

TEST(HostLogitsDeathTest, WhatWasNotAskedForIsNotThere) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  test::TestStream stream(1);
  const Matrix logits = made_logits();
  HostLogits look(stream, options());
  look.set(logits.view());
  look.want_token(0);
  look.want_values(1);
  look.fetch();
  EXPECT_DEATH(look.values(0), "values of row 0 were not asked for");
  EXPECT_DEATH(look.token(1), "token of row 1 was not asked for");
  EXPECT_DEATH(look.token(2), "token of row 2 was not asked for");
}

/// A matrix's rows as the sampler takes them.
std::vector<std::vector<float>> float_rows(ConstMatrixView logits) {
  std::vector<std::vector<float>> rows(static_cast<std::size_t>(logits.rows));
  visit_dtype(logits.dtype, [&]<class T>() {
    for (int64_t r = 0; r < logits.rows; ++r) {
      for (int64_t c = 0; c < logits.cols; ++c) rows[static_cast<std::size_t>(r)].push_back(to_float(logits.row<T>(r)[c]));
    }
  });
  return rows;
}

/// Requests of every kind, side by side.
void add_requests(Scheduler& scheduler, int32_t num_tokens) {
  const std::vector<std::pair<float, int32_t>> kinds = {{0.0F, 0}, {0.9F, 0}, {0.0F, 0}, {1.5F, 7}, {0.0F, 0}};  // and top_k
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    Request request;
    request.number = RequestNumber{i};
    for (std::size_t t = 0; t < 6 + 5 * i; ++t) request.prompt.push_back(static_cast<TokenId>(3 + (t + i) % 4));
    request.sampling.max_tokens = num_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.seed = i;
    std::tie(request.sampling.temperature, request.sampling.top_k) = kinds[i];
    scheduler.add(std::move(request), {});
  }
}

/// Of every step what is chosen with the host's look at tokens and rows is what sample() chooses of all values.
void expect_choices_of_all_values(const DeviceChoice& device, const Speculation& speculation) {
  EngineOptions options;
  options.model = test::source_folder() / "tests" / "golden" / "fp8_qwen3_5_moe";
  options.device = device;
  options.dtype = DType::kBF16;
  options.threads = 2;
  options.max_seqs = 5;
  options.memory_bytes = int64_t{64} << 20;
  options.max_context = 256;
  options.speculation = speculation;
  Cluster cluster(options);
  Engine engine(options, cluster);
  Scheduler scheduler(engine.scheduler_options());
  add_requests(scheduler, device.kind == DeviceChoice::Kind::kVulkan ? 8 : 16);
  const int64_t vocab = engine.config().vocab_size;
  StepSampler sampler(engine.pool(), {.vocab_size = vocab, .max_sequences = 5, .max_drafts = 3});
  SamplerScratch scratch(vocab);
  int64_t num_steps = 0, num_draft_rows = 0;
  while (scheduler.load().num_running + scheduler.load().num_waiting > 0) {
    const StepPlan& plan = scheduler.plan({});
    ASSERT_GT(plan.num_rows, 0);
    HostLogits& logits = engine.compute(plan);
    const std::vector<std::vector<float>> rows = float_rows(logits.all_values());
    const StepChoices choices = sampler.run(plan, logits);
    std::size_t token = 0, sample_idx = 0, first_row = 0;
    for (const StepEntry& entry : plan.entries) {
      if (!entry.samples) continue;
      const int32_t num_chosen = choices.num_tokens[sample_idx++];
      for (int32_t i = 0; i < num_chosen; ++i) {
        const Sequence& sequence = *entry.sequence;
        EXPECT_EQ(choices.tokens[token++], sample(rows.at(first_row + static_cast<std::size_t>(i)), static_cast<int32_t>(vocab),
                                                  sequence.request.sampling, sequence.num_generated() + i, scratch))
            << "step " << num_steps << ", temperature " << sequence.request.sampling.temperature;
      }
      first_row += static_cast<std::size_t>(entry.num_logits());
    }
    EXPECT_EQ(first_row, rows.size());
    num_draft_rows += plan.num_drafts;
    ++num_steps;
    scheduler.commit(plan, choices, {});
    engine.draft(plan, scheduler);
    scheduler.take_finished();
  }
  EXPECT_GE(num_steps, 5);
  EXPECT_EQ(num_draft_rows > 0, speculation.max_drafts > 0);
}

class StepChoicesOn : public testing::TestWithParam<DeviceChoice::Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceChoice::Kind::kVulkan && !test::has_vulkan_device()) GTEST_SKIP() << "no Vulkan device";
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepChoicesOn, testing::Values(DeviceChoice::Kind::kCpu, DeviceChoice::Kind::kVulkan),
                         [](const auto& kind) { return kind.param == DeviceChoice::Kind::kCpu ? "cpu" : "vulkan"; });

TEST_P(StepChoicesOn, AreThoseOfAllValues) {
  for (const int64_t max_drafts : {0, 3}) {
    SCOPED_TRACE(testing::Message() << max_drafts << " drafts");
    expect_choices_of_all_values({GetParam(), std::nullopt}, {Speculation::Source::kMtp, max_drafts});
  }
}

}  // namespace
}  // namespace ferry
