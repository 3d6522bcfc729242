#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/vulkan/commands.h"
#include "kernels/vulkan/device.h"
#include "kernels/vulkan/pipelines.h"
#include "kernels/vulkan/queue.h"
#include "kernels/vulkan/shaders/push_chain.h"
#include "tests/bench/vulkan_bench.h"

// What it costs that stages wait for one another, each of which reads what all workgroups wrote in the one before, and weights:
//
//   barriers      a dispatch a stage, with a barrier between two
//   chain         a dispatch a stage without barriers, whose workgroups wait themselves for those before them
//   one dispatch  of all stages, likewise; it needs workgroups that all run at once
//
//   vulkan_barrier_bench [--device I] [--quick] [--only TEXT]
//
// The elements behind some stages must be what the host makes of them before the way is timed. Lines say
//
//   way, workgroups of 256, MB of weights a stage: us a stage

namespace ferry::bench {
namespace {

using vulkan::Buffer;
using vulkan::BufferUse;
using vulkan::Commands;
using vulkan::Device;
using vulkan::PhysicalDevice;

constexpr uint32_t kInvocations = 256, kUnitBytes = 16, kCheckedStages = 33;
constexpr std::size_t kCounterBytes = 64;

enum class Way : uint8_t { kBarriers, kChain, kOneDispatch };

struct Case {
  Way way;
  uint32_t workgroups;
  uint32_t units_each;  // of weights, of an invocation
  bool reads_first;     // weights, before it waits

  uint32_t num_elements() const { return workgroups * kInvocations; }
  std::size_t weight_bytes() const { return std::size_t{kUnitBytes} * units_each * num_elements(); }
  std::string name() const {
    const char* const ways[] = {"barriers", "chain", "one dispatch"};
    char text[96];
    std::snprintf(text, sizeof text, "%-12s %5u workgroups, %6.2f MB%s", ways[static_cast<int>(way)], workgroups,
                  static_cast<double>(weight_bytes()) * 1e-6, reads_first ? ", read first" : "");
    return text;
  }
};

std::vector<uint32_t> first_elements(uint32_t count) {
  std::vector<uint32_t> elements(count);
  std::iota(elements.begin(), elements.end(), 1U);
  return elements;
}

std::vector<uint32_t> expected_elements(uint32_t count, uint32_t num_stages) {
  std::vector<uint32_t> from = first_elements(count), to(count);
  for (uint32_t s = 0; s < num_stages; ++s) {
    for (uint32_t i = 0; i < count; ++i) to[i] = from[(i * 5 + 12345) % count] * 1664525 + 1013904223;
    std::swap(from, to);
  }
  return from;
}

class Chain {
 public:
  Chain(Device& device, uint32_t most_workgroups, std::size_t weight_bytes)
      : device_(device),
        commands_(device),
        first_(device, element_bytes(most_workgroups), BufferUse::kUpload),
        a_(device, first_.size(), BufferUse::kDevice),
        b_(device, first_.size(), BufferUse::kDevice),
        weights_(device, weight_bytes, BufferUse::kDevice),
        counter_(device, kCounterBytes, BufferUse::kDevice),
        result_(device, first_.size() + kCounterBytes, BufferUse::kDownload) {
    const std::vector<uint32_t> elements = first_elements(most_workgroups * kInvocations);
    std::memcpy(first_.host(), elements.data(), first_.size());
    commands_.begin();
    device.vk().CmdFillBuffer(commands_.handle(), weights_.handle(), 0, VK_WHOLE_SIZE, 0);
    commands_.end();
    run();
  }

  void check(const Case& c) {
    record(c, kCheckedStages);
    run();
    const std::vector<uint32_t> expected = expected_elements(c.num_elements(), kCheckedStages);
    uint32_t in_vain = 0;
    std::memcpy(&in_vain, result_.host() + first_.size() + sizeof in_vain, sizeof in_vain);
    if (in_vain > 0) fail(c.name() + ": " + std::to_string(in_vain) + " workgroups waited in vain");
    if (std::memcmp(result_.host(), expected.data(), expected.size() * sizeof expected[0]) != 0)
      fail(c.name() + ": elements are not what the stages make of them");
  }

  /// Seconds of a stage.
  double time(const Case& c, uint32_t num_stages) {
    record(c, num_stages);
    double best = run();
    for (int i = 0; i < 2; ++i) best = std::min(best, run());
    return best / num_stages;
  }

 private:
  static std::size_t element_bytes(uint32_t workgroups) { return sizeof(uint32_t) * workgroups * kInvocations; }

  /// Seconds.
  double run() {
    const auto begin = std::chrono::steady_clock::now();
    device_.queue().wait(device_.queue().submit(commands_.handle()));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void copy(const Buffer& from, const Buffer& to, std::size_t size, std::size_t to_offset = 0) {
    const VkBufferCopy region{.srcOffset = 0, .dstOffset = to_offset, .size = size};
    device_.vk().CmdCopyBuffer(commands_.handle(), from.handle(), to.handle(), 1, &region);
  }

  void record_stages(const Case& c, uint32_t num_stages) {
    const auto& vk = device_.vk();
    const uint32_t waits = c.way == Way::kBarriers ? 0 : 1, each = c.way == Way::kOneDispatch ? num_stages : 1;
    const std::size_t places = weights_.size() / std::max(c.weight_bytes(), std::size_t{1});
    vk.CmdBindPipeline(commands_.handle(), VK_PIPELINE_BIND_POINT_COMPUTE,
                       device_.pipelines().get(
                           {vulkan::find_shader("chain_stage"), {kInvocations, c.units_each, waits, c.reads_first ? 1U : 0U}}));
    uint64_t from = a_.address(), to = b_.address();
    for (uint32_t s = 0; s < num_stages; s += each) {
      const vulkan::ChainStagePush push{.from = from,
                                        .to = to,
                                        .weights = weights_.address() + s % places * c.weight_bytes(),
                                        .counter = counter_.address(),
                                        .done_before = s * c.workgroups,
                                        .num_stages = each};
      vk.CmdPushConstants(commands_.handle(), device_.pipelines().layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
      vk.CmdDispatch(commands_.handle(), c.workgroups, 1, 1);
      if (c.way == Way::kBarriers) commands_.barrier(Commands::Scope::kDispatches);
      std::swap(from, to);
    }
  }

  void record(const Case& c, uint32_t num_stages) {
    commands_.begin();
    copy(first_, a_, c.num_elements() * sizeof(uint32_t));
    device_.vk().CmdFillBuffer(commands_.handle(), counter_.handle(), 0, VK_WHOLE_SIZE, 0);
    commands_.barrier();
    record_stages(c, num_stages);
    commands_.barrier();
    copy(num_stages % 2 == 0 ? a_ : b_, result_, c.num_elements() * sizeof(uint32_t));
    copy(counter_, result_, kCounterBytes, first_.size());
    commands_.barrier_to_host();
    commands_.end();
  }

  Device& device_;
  Commands commands_;
  Buffer first_, a_, b_, weights_, counter_, result_;
};

std::vector<Case> list_cases(bool is_quick) {
  const std::vector<uint32_t> grids = is_quick ? std::vector<uint32_t>{2} : std::vector<uint32_t>{16, 132, 264, 528, 2048};
  constexpr uint32_t kMostAtOnce = 528;  // that a device of 132 multiprocessors certainly holds
  std::vector<Case> cases;
  for (const Way way : {Way::kBarriers, Way::kChain, Way::kOneDispatch}) {
    // Workgroups of one dispatch wait for one another: a device that runs them in turn, as one of few cores, never ends.
    if (way == Way::kOneDispatch && is_quick) continue;
    for (const uint32_t workgroups : grids) {
      if (way == Way::kOneDispatch && workgroups > kMostAtOnce) continue;
      for (const uint32_t units : {0U, 2U, 8U}) {
        cases.push_back({way, workgroups, units, false});
        if (way != Way::kBarriers && units > 0) cases.push_back({way, workgroups, units, true});
      }
    }
  }
  return cases;
}

int measure(const PhysicalDevice& physical, const VulkanOptions& options) {
  const std::vector<Case> cases = list_cases(options.is_quick);
  uint32_t most_workgroups = 0;
  for (const Case& c : cases) most_workgroups = std::max(most_workgroups, c.workgroups);
  Device device(physical);
  Chain chain(device, most_workgroups, std::size_t{1} << (options.is_quick ? 18 : 27));
  for (const Case& c : cases) {
    if (!options.wants(c.name())) continue;
    chain.check(c);
    std::printf("%-56s %7.2f us\n", c.name().c_str(), chain.time(c, options.is_quick ? 4 : 1000) * 1e6);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ferry::bench

int main(int argc, char** argv) {
  return ferry::bench::run_program(argc, argv, {.name = "vulkan_barrier_bench", .run = ferry::bench::measure});
}
