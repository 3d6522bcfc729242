#include <gtest/gtest.h>

#include <string>

#include "tests/support/apart_device.h"
#include "tests/support/decoder_steps.h"

// The decoder on a device that the host cannot touch and that runs only what was waited for computes the host's bits.

namespace ferry {
namespace {

TEST(Device, ComputesTheBitsOfTheHost) {
  for (const test::ModelCase& c :
       {test::ModelCase{"qwen3_5_moe", DType::kF32, "none"}, test::ModelCase{"qwen3_5_moe", DType::kBF16, "none"},
        test::ModelCase{"qwen3_5_moe_wide", DType::kBF16, "w8a8"}, test::ModelCase{"qwen3_5", DType::kF32, "none"},
        test::ModelCase{"fp8_qwen3_5_moe", DType::kBF16, "none"}, test::ModelCase{"qwen3_next", DType::kF32, "none"},
        test::ModelCase{"lfm2_moe", DType::kBF16, "none"}, test::ModelCase{"lfm2", DType::kF32, "none"}}) {
    ThreadPool pool(2);
    const Backend host = select_backend("auto", "auto", c.dtype);
    Stream host_stream(host, pool);
    test::ApartDevice device(c.dtype);
    test::ApartStream device_stream(device, pool);
    const std::vector<test::StepLogits> expected = test::run_decoder_steps(c, host_stream),
                                        actual = test::run_decoder_steps(c, device_stream);
    const std::string what = case_name(c);
    ASSERT_EQ(expected.size(), actual.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(expected[i] == actual[i]) << what << ", step " << i;
    EXPECT_GT(device_stream.num_recorded(), 4 * 20) << what;
  }
}

TEST(DeviceDeathTest, TheHostMayNotTouchItsMemory) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  test::ApartDevice device(DType::kF32);
  Matrix matrix(device.memory(), DType::kF32, 2, 3);
  const Array<float> array(device.memory(), 4);
  EXPECT_DEATH(matrix.view().row<float>(0), "may not touch a device's memory");
  EXPECT_DEATH(matrix.top(1).cols_from(1, 1).row_bytes(0), "may not touch a device's memory");
  EXPECT_DEATH(array.data().host(), "may not touch a device's memory");
  EXPECT_DEATH(*matrix.view().row_address(0) = std::byte{1}, "");
}

}  // namespace
}  // namespace ferry
