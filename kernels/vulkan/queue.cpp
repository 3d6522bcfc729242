#include "kernels/vulkan/queue.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "kernels/vulkan/device.h"

namespace ferry::vulkan {
namespace {

constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(500);
constexpr int kMostLooks = 120;  // a minute for one submission, which takes a second at most on a device that is one
constexpr int kMostLooksAtCpu = 60 * kMostLooks;  // a driver that computes on this machine's cores waits for them as others do

/// For how long a waiting thread asks before it sleeps: to be woken takes tens of microseconds, of a step of two milliseconds.
/// Others may have its core meanwhile. A device that computes on this machine's cores is not asked.
constexpr std::chrono::nanoseconds kSpin = std::chrono::milliseconds(5);

}  // namespace

Queue::Queue(Device& device) : device_(device) {
  device.vk().GetDeviceQueue(device.handle(), device.physical().queue_family, 0, &queue_);
  const VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                       .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo create{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  check(device.vk().CreateSemaphore(device.handle(), &create, nullptr, &timeline_), "making a semaphore");
}

Queue::~Queue() { device_.vk().DestroySemaphore(device_.handle(), timeline_, nullptr); }

uint64_t Queue::submit(VkCommandBuffer commands) {
  const std::lock_guard lock(mutex_);
  const VkCommandBufferSubmitInfo buffer{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = commands};
  const VkSemaphoreSubmitInfo signal{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                     .semaphore = timeline_,
                                     .value = num_submitted_ + 1,
                                     .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
  const VkSubmitInfo2 submit{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                             .commandBufferInfoCount = 1,
                             .pCommandBufferInfos = &buffer,
                             .signalSemaphoreInfoCount = 1,
                             .pSignalSemaphoreInfos = &signal};
  check(device_.vk().QueueSubmit2(queue_, 1, &submit, VK_NULL_HANDLE),
        ("submitting to " + device_.physical().info.name).c_str());
  return ++num_submitted_;
}

void Queue::wait(uint64_t number) {
  if (device_.physical().info.kind == "CPU") return block(number);
  const auto until = std::chrono::steady_clock::now() + kSpin;
  while (num_done() < number) {
    if (std::chrono::steady_clock::now() > until) return block(number);
    std::this_thread::yield();
  }
}

void Queue::block(uint64_t number) {
  const VkSemaphoreWaitInfo wait{
      .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, .semaphoreCount = 1, .pSemaphores = &timeline_, .pValues = &number};
  const int most_looks = device_.physical().info.kind == "CPU" ? kMostLooksAtCpu : kMostLooks;
  uint64_t done = num_done();
  for (int looks = 1;; ++looks) {
    const VkResult result = device_.vk().WaitSemaphores(device_.handle(), &wait, static_cast<uint64_t>(kLook.count()));
    num_looks_.fetch_add(1, std::memory_order_relaxed);
    if (result != VK_TIMEOUT) return check(result, ("waiting for " + device_.physical().info.name).c_str());
    const uint64_t before = std::exchange(done, num_done());
    if (done > before) looks = 0;
    if (looks == most_looks) check(VK_TIMEOUT, ("waiting for " + device_.physical().info.name).c_str());
  }
}

uint64_t Queue::num_done() {
  uint64_t number = 0;
  check(device_.vk().GetSemaphoreCounterValue(device_.handle(), timeline_, &number),
        ("asking " + device_.physical().info.name).c_str());
  return number;
}

}  // namespace ferry::vulkan
