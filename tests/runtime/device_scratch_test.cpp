#include <gtest/gtest.h>

#include "runtime/device_needs.h"
#include "runtime/model/config.h"
#include "tests/support/decoder_steps.h"
#include "tests/support/source_folder.h"
#include "tests/support/vulkan_device.h"

namespace ferry {
namespace {

/// What is counted before a run loads, against what its steps take.
TEST(DeviceScratch, CoversTheStepsOfADecoder) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  for (const char* model : {"qwen3_5_moe", "lfm2_moe", "qwen3_5"}) {
    const test::ModelCase steps{model, DType::kF32, "none"};
    ModelConfig config = load_config(test::source_folder() / "tests" / "golden" / model);
    config.mtp = true;  // at least as much as without
    const OpLimits limits = op_limits(config, {.dtype = steps.dtype,
                                               .limits = {.max_tokens = 96, .max_logit_rows = 96, .max_sequences = 2},
                                               .max_keys = 96,
                                               .delta_chunk = 64});
    test::VulkanDevice device(*physical, steps.dtype);
    device.backend.reserve_scratch(device.stream, limits);
    run_decoder_steps(steps, device.stream);
    EXPECT_EQ(static_cast<int64_t>(device.stream.scratch_bytes()), device.backend.scratch_bytes(limits)) << model;
  }
}

}  // namespace
}  // namespace ferry
