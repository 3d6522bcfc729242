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
    EXPECT_TRUE(message.starts_with("--memory 5 needs 34359738368 MiB of memory; available: ")) << message;
  }
}

TEST(AlignedBuffer, IsRefusedWhereTheSystemWouldKill) {
  EXPECT_THROW(AlignedBuffer(static_cast<std::size_t>(kMoreThanAnyMachineHas)), Error);
}

}  // namespace
}  // namespace ferry
