#include "kernels/vulkan/read_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "kernels/vulkan/pipelines.h"
#include "kernels/vulkan/queue.h"
#include "kernels/vulkan/shaders/push_probe.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr std::size_t kUnit = 16, kFewestBytes = std::size_t{64} << 10;

}  // namespace

ReadProbe::ReadProbe(Device& device, std::size_t num_bytes, Clock& clock)
    : device_(device),
      clock_(clock),
      num_bytes_(std::max(num_bytes, kFewestBytes) / kUnit * kUnit),
      commands_(device),
      stream_(device, num_bytes_, BufferUse::kDevice),
      total_(device, sizeof(uint32_t), BufferUse::kDownload) {
  fill(0);
}

void ReadProbe::fill(uint32_t word) {
  commands_.begin();
  device_.vk().CmdFillBuffer(commands_.handle(), stream_.handle(), 0, num_bytes_, word);
  commands_.end();
  run();
}

void ReadProbe::run() { device_.queue().wait(device_.queue().submit(commands_.handle())); }

ReadProbe::Pass ReadProbe::read(Shape shape, int num_times) {
  const DeviceFunctions& vk = device_.vk();
  const VkPipelineLayout layout = device_.pipelines().layout();
  const ReadStreamPush push{
      .from = stream_.address(), .total = total_.address(), .num_units = static_cast<uint32_t>(num_bytes_ / kUnit)};
  const uint32_t units = shape.invocations * shape.units_each;
  commands_.begin();
  vk.CmdFillBuffer(commands_.handle(), total_.handle(), 0, sizeof(uint32_t), 0);
  commands_.barrier();
  vk.CmdBindPipeline(commands_.handle(), VK_PIPELINE_BIND_POINT_COMPUTE,
                     device_.pipelines().get({find_shader("read_stream"), {shape.invocations, shape.units_each}}));
  vk.CmdPushConstants(commands_.handle(), layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
  for (int i = 0; i < num_times; ++i) {
    commands_.barrier(Commands::Scope::kDispatches);
    vk.CmdDispatch(commands_.handle(), (push.num_units + units - 1) / units, 1, 1);
  }
  commands_.barrier_to_host();
  commands_.end();
  const Clock::Time start = clock_.now();
  run();
  Pass pass{.seconds = std::chrono::duration<double>(clock_.now() - start).count(), .total = 0};
  std::memcpy(&pass.total, total_.host(), sizeof pass.total);
  return pass;
}

double ReadProbe::bytes_per_s() {
  constexpr double kSeconds = 0.01;  // of a pass, so that handing it over does not count
  constexpr int kMostTimes = 1000, kPasses = 2;
  double best = 0;
  for (const Shape shape : kShapes) {
    const double once = read(shape, 1).seconds;
    const int num_times = static_cast<int>(std::clamp(std::ceil(kSeconds / once), 1.0, double{kMostTimes}));
    for (int i = 0; i < kPasses; ++i) {
      const Pass pass = read(shape, num_times);
      FERRY_CHECK_EQ(pass.total, 0u) << " the stream is all zeros";
      best = std::max(best, static_cast<double>(num_bytes_) * num_times / pass.seconds);
    }
  }
  return best;
}

}  // namespace ferry::vulkan
