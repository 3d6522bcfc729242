#include "kernels/vulkan/device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "kernels/vulkan/queue.h"
#include "runtime/base/memory_use.h"
#include "tests/support/expect_error.h"
#include "tests/support/vulkan_device.h"

namespace ferry::vulkan {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

std::vector<std::byte> read(Stream& stream, const Storage& storage) {
  std::vector<std::byte> bytes(storage.size(), std::byte{0x5a});
  stream.copy(storage.address(), Address<std::byte>(bytes.data()), bytes.size());
  stream.wait(stream.submit());
  return bytes;
}

TEST(VulkanDevices, SayWhatTheyCanDoOrWhyNot) {
  const DeviceList list = list_devices();
  EXPECT_EQ(list.devices.empty(), !list.lack.empty());
  for (const DeviceInfo& device : list.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_NE(device.refusal.empty(), device.abilities.empty()) << device.name;
  }
}

TEST(VulkanDevices, AnIndexThatThereIsNotIsRefusedByName) {
  if (list_devices().devices.empty()) GTEST_SKIP() << "this machine has no Vulkan device";
  for (const int index : {-1, 77}) {
    test::expect_error([&] { open_device(index, DType::kF32); }, ErrorCode::kInvalidArgument,
                       {"vulkan:" + std::to_string(index), "allowed: 0 ("});
  }
}

TEST(VulkanMemory, IsRefusedInPiecesThatTheDeviceDoesNotHave) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  PhysicalDevice lowered = *physical;
  EXPECT_GE(lowered.traits.max_buffer_bytes, uint64_t{1} << 30) << "Vulkan 1.3 promises as much";
  lowered.traits.max_buffer_bytes = uint64_t{80} << 20;
  test::VulkanDevice device(lowered);
  EXPECT_NO_THROW(device.memory().allocate(std::size_t{80} << 20));
  test::expect_error([&] { device.memory().allocate((std::size_t{80} << 20) + 1); }, ErrorCode::kResourceExhausted,
                     {lowered.info.name, "up to 80 MiB", "needed: one of 81 MiB"});
}

int64_t device_bytes(MemoryUse use) { return measure_memory_uses()[static_cast<std::size_t>(use)].device; }

TEST(VulkanMemory, CountsForWhatItIsUsedFor) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  const int64_t weights = device_bytes(MemoryUse::kWeights), buffers = device_bytes(MemoryUse::kBuffers);
  constexpr std::size_t kLarge = std::size_t{64} << 20, kSmall = 1000;
  {
    const MemoryUseScope use(MemoryUse::kWeights);
    const Storage large = device.memory().allocate(kLarge), small = device.memory().allocate(kSmall);
    EXPECT_EQ(device_bytes(MemoryUse::kWeights) - weights, int64_t{kLarge + 1024});
    // The block that the small one lies in is there, but for its place.
    EXPECT_EQ(device_bytes(MemoryUse::kBuffers) - buffers, int64_t{(64 << 20) - 1024});
  }
  EXPECT_EQ(device_bytes(MemoryUse::kWeights), weights);
  EXPECT_EQ(device_bytes(MemoryUse::kBuffers) - buffers, int64_t{64 << 20}) << "the last block stays";
}

TEST(VulkanMemory, IsZeroAndKeepsWhatItIsFilledWith) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  // A size below, at and above what shares a block, and one that crosses the room of a copy.
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{16} << 20, (std::size_t{33} << 20) + 5}) {
    Storage storage = device.memory().allocate(size);
    EXPECT_EQ(reinterpret_cast<uint64_t>(storage.address().raw()) % 64, 0u);
    EXPECT_EQ(read(device.stream, storage), std::vector<std::byte>(size)) << size;
    const std::vector<std::byte> expected = random_bytes(size, 1);
    device.memory().fill(storage.address(), expected);
    EXPECT_TRUE(read(device.stream, storage) == expected) << size;
  }
}

TEST(VulkanMemory, ManyThreadsFillAtOnce) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  constexpr int kNumThreads = 8;
  std::vector<Storage> storages(kNumThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&, i] {
      storages[static_cast<std::size_t>(i)] = device.memory().allocate(100'000 + static_cast<std::size_t>(i));
      device.memory().fill(storages[static_cast<std::size_t>(i)].address(),
                           random_bytes(100'000 + static_cast<std::size_t>(i), static_cast<uint32_t>(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kNumThreads; ++i) {
    const auto size = 100'000 + static_cast<std::size_t>(i);
    EXPECT_TRUE(read(device.stream, storages[static_cast<std::size_t>(i)]) == random_bytes(size, static_cast<uint32_t>(i)));
  }
}

PFN_vkAllocateMemory allocate_memory = nullptr;  // the driver's
std::atomic<int> num_allocations{0};

VKAPI_ATTR VkResult VKAPI_CALL count_allocation(VkDevice device, const VkMemoryAllocateInfo* info,
                                                const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
  ++num_allocations;
  return allocate_memory(device, info, callbacks, memory);
}

// Threads that pack weights all find a block full at once, and must not make one each.
TEST(VulkanMemory, ManyThreadsShareBlocks) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  Storage first = device.memory().allocate(1);  // whose block, and the way to it, are not counted
  allocate_memory = std::exchange(device.backend.device().vk().AllocateMemory, &count_allocation);
  num_allocations = 0;
  constexpr int kNumThreads = 8, kNumPieces = 12;
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  std::vector<std::vector<Storage>> storages(kNumThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int piece = 0; piece < kNumPieces; ++piece)
        storages[static_cast<std::size_t>(i)].push_back(device.memory().allocate(kPiece));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(num_allocations, 7) << "384 MiB in blocks of 64";
}

/// Weights that come and go, some of which stay: what one leaves behind is zero and used again.
TEST(VulkanMemory, WhatIsGivenBackIsUsedAgain) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  constexpr std::size_t kPiece = std::size_t{3} << 20;
  std::vector<Storage> kept;
  kept.push_back(device.memory().allocate(1));
  allocate_memory = std::exchange(device.backend.device().vk().AllocateMemory, &count_allocation);
  num_allocations = 0;
  for (int i = 0; i < 100; ++i) {  // 300 MiB in all
    Storage storage = device.memory().allocate(kPiece);
    if (i % 10 == 0) {
      EXPECT_TRUE(read(device.stream, storage) == std::vector<std::byte>(kPiece)) << i;
    }
    device.memory().fill(storage.address(), random_bytes(kPiece, 1));
    if (i % 20 == 0) kept.push_back(std::move(storage));
  }
  EXPECT_LE(num_allocations, 2) << "the way to the device and none, or one, for 18 MiB at most";
  for (std::size_t i = 1; i < kept.size(); ++i) EXPECT_TRUE(read(device.stream, kept[i]) == random_bytes(kPiece, 1));
}

// The driver's functions are replaced by ones that fail as a device does that is full, or gone.

TEST(VulkanFailures, TooLittleMemoryNamesTheDeviceAndTheBytes) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  device.backend.device().vk().AllocateMemory = [](VkDevice, const VkMemoryAllocateInfo*, const VkAllocationCallbacks*,
                                                   VkDeviceMemory*) { return VK_ERROR_OUT_OF_DEVICE_MEMORY; };
  test::expect_error([&] { device.memory().allocate(std::size_t{100} << 20); }, ErrorCode::kResourceExhausted,
                     {physical->info.name, "100 MiB"});
}

TEST(VulkanFailures, ALostDeviceIsUnavailable) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  Storage storage = device.memory().allocate(64);
  device.stream.clear(storage.address(), 64);
  const auto event = device.stream.submit();
  auto& vk = device.backend.device().vk();
  const auto wait =
      std::exchange(vk.WaitSemaphores, [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) { return VK_ERROR_DEVICE_LOST; });
  const auto count = std::exchange(vk.GetSemaphoreCounterValue, [](VkDevice, VkSemaphore, uint64_t* number) {
    *number = 0;  // or a fast device would be done before anybody waits
    return VK_SUCCESS;
  });
  test::expect_error([&] { device.stream.wait(event); }, ErrorCode::kUnavailable, {"device is lost"});
  vk.WaitSemaphores = [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) { return VK_TIMEOUT; };
  test::expect_error([&] { device.stream.wait(event); }, ErrorCode::kUnavailable, {"did not finish in time"});
  vk.WaitSemaphores = wait;
  vk.GetSemaphoreCounterValue = count;
  const auto submit =
      std::exchange(vk.QueueSubmit2, [](VkQueue, uint32_t, const VkSubmitInfo2*, VkFence) { return VK_ERROR_DEVICE_LOST; });
  device.stream.clear(storage.address(), 64);
  test::expect_error([&] { device.stream.submit(); }, ErrorCode::kUnavailable, {physical->info.name});
  vk.QueueSubmit2 = submit;
}

uint64_t faked_done = 0, faked_waits = 0, faked_most = 0;

/// The wait ends in time for no one; meanwhile a submission more has run, of as many as there may.
VKAPI_ATTR VkResult VKAPI_CALL wait_too_short(VkDevice, const VkSemaphoreWaitInfo* info, uint64_t) {
  ++faked_waits;
  if (faked_done < faked_most) ++faked_done;
  return faked_done >= *info->pValues ? VK_SUCCESS : VK_TIMEOUT;
}

TEST(VulkanFailures, ADeviceIsWaitedForWhileItGoesOn) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  auto& vk = device.backend.device().vk();
  const auto wait = std::exchange(vk.WaitSemaphores, wait_too_short);
  const auto count = std::exchange(vk.GetSemaphoreCounterValue, [](VkDevice, VkSemaphore, uint64_t* number) {
    *number = faked_done;
    return VK_SUCCESS;
  });
  faked_done = faked_waits = 0;
  faked_most = 5;
  EXPECT_NO_THROW(device.backend.device().queue().wait(5));
  EXPECT_EQ(faked_waits, 5U);
  EXPECT_EQ(device.backend.progress(), 10U) << "five submissions, and five looks at them";
  faked_most = 7;  // of nine
  test::expect_error([&] { device.backend.device().queue().wait(9); }, ErrorCode::kUnavailable, {"did not finish in time"});
  const uint64_t num_looks = physical->info.kind == "CPU" ? 60 * 120 : 120;
  EXPECT_EQ(faked_waits, 5U + 2 + num_looks)
      << "two that ended with more done, and an hour or a minute of looks at one that is not";
  vk.WaitSemaphores = wait;
  vk.GetSemaphoreCounterValue = count;
}

}  // namespace
}  // namespace ferry::vulkan
