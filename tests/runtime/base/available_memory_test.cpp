#include "runtime/base/available_memory.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kMoreThanAnyMachineHas = int64_t{1} << 55;  // bytes

TEST(AvailableMemory, IsKnownAndPlausible) {
  EXPECT_GT(available_memory_bytes(), int64_t{1} << 20);
  EXPECT_LT(available_memory_bytes(), kMoreThanAnyMachineHas);
}

TEST(SizeText, HasFewDigits) {
  constexpr int64_t kUnit = int64_t{1} << 20, kGiB = kUnit << 10, kTiB = kGiB << 10;
  EXPECT_EQ(size_text(0), "0 MiB");
  EXPECT_EQ(size_text(kUnit - 1), "0 MiB");
  EXPECT_EQ(size_that_holds(1), "1 MiB");
  EXPECT_EQ(size_text(10 * kGiB - 1), "10239 MiB");
  EXPECT_EQ(size_that_holds(10 * kGiB - 1), "10240 MiB");
  EXPECT_EQ(size_text(10 * kGiB), "10 GiB");
  EXPECT_EQ(size_that_holds(10 * kGiB + 1), "11 GiB");
  EXPECT_EQ(size_text(192 * kTiB), "192 TiB");
  EXPECT_EQ(size_that_holds(INT64_MAX), "8388608 TiB");
}

TEST(RequireMemory, AcceptsLittle) {
  EXPECT_NO_THROW(require_memory(0, "nothing"));
  EXPECT_NO_THROW(require_memory(4097, "a page and a byte"));
}

TEST(RequireMemory, NamesWhatIsTooLarge) {
  try {
    require_memory(kMoreThanAnyMachineHas, "--memory 5");
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_TRUE(message.starts_with("--memory 5 needs 32768 TiB of memory; available: ")) << message;
  }
}

TEST(AlignedBuffer, IsRefusedWhereTheSystemWouldKill) {
  EXPECT_THROW(AlignedBuffer(static_cast<std::size_t>(kMoreThanAnyMachineHas)), Error);
}

}  // namespace
}  // namespace ferry
