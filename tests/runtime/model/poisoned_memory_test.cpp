#include "tests/support/poisoned_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/decoder_steps.h"

// Memory that is used again holds what its last user left. So the decoder computes the same bits where nothing starts as zeros:
// keys, values and states, the rows of a step, and what kernels work with. A state is cleared when a sequence takes it.

namespace ferry {
namespace {

constexpr int64_t kScratchFloats = int64_t{1} << 20;  // more than these models need at once

TEST(PoisonedMemory, IsNotReadBeforeItIsWritten) {
  for (const test::ModelCase& c :
       {test::ModelCase{"qwen3_5_moe", DType::kF32, "none"}, test::ModelCase{"qwen3_5_moe", DType::kBF16, "none"},
        test::ModelCase{"qwen3_5_moe_wide", DType::kBF16, "w8a8"}, test::ModelCase{"qwen3_5_moe", DType::kBF16, "lm_head=w4a8"},
        test::ModelCase{"qwen3_5", DType::kF32, "none"}, test::ModelCase{"fp8_qwen3_5_moe", DType::kBF16, "none"},
        test::ModelCase{"qwen3_next", DType::kF32, "none"}, test::ModelCase{"lfm2_moe", DType::kBF16, "none"},
        test::ModelCase{"lfm2", DType::kF32, "none"}}) {
    ThreadPool pool(1);  // whose working memory is this thread's
    const Backend clean = select_backend("auto", "auto", c.dtype);
    Stream clean_stream(clean, pool);
    const std::vector<test::StepLogits> expected = test::run_decoder_steps(c, clean_stream);
    test::poison_scratch(kScratchFloats);
    const test::PoisonedBackend poisoned(c.dtype);
    Stream poisoned_stream(poisoned.backend(), pool);
    const std::vector<test::StepLogits> actual = test::run_decoder_steps(c, poisoned_stream);
    ASSERT_EQ(expected.size(), actual.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(expected[i] == actual[i]) << case_name(c) << ", step " << i;
  }
}

}  // namespace
}  // namespace ferry
