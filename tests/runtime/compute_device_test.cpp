#include "runtime/compute_device.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using Kind = DeviceChoice::Kind;
using test::expect_error;

constexpr DeviceChoice kAuto{Kind::kAuto, std::nullopt}, kVulkan{Kind::kVulkan, std::nullopt};

vulkan::DeviceInfo device(const char* name, const char* kind, const char* refusal = "") {
  return {.name = name, .driver = "test 1", .kind = kind, .memory_bytes = 1 << 20, .abilities = {}, .refusal = refusal};
}

const vulkan::DeviceList kNone{.devices = {}, .lack = "no loader"};
const vulkan::DeviceList kEmulated{.devices = {device("llvmpipe", "CPU")}, .lack = ""};
const vulkan::DeviceList kMixed{.devices = {device("llvmpipe", "CPU"), device("old", "discrete GPU", "it speaks Vulkan 1.1"),
                                            device("a", "integrated GPU"), device("b", "discrete GPU")},
                                .lack = ""};

TEST(SelectDevice, TheCpuNeedsNoDevice) {
  for (const vulkan::DeviceList* list : {&kNone, &kEmulated, &kMixed}) {
    const DeviceSelection selection = select_device({}, *list, 0);
    EXPECT_FALSE(selection.index);
    EXPECT_EQ(selection.why_cpu, "");
  }
}

TEST(SelectDevice, AutoTakesTheFirstGpuThatCanBeUsed) {
  for (const int local_rank : {0, 1, 5}) EXPECT_EQ(select_device(kAuto, kMixed, local_rank).index, 2);
  EXPECT_EQ(select_device(kAuto, kMixed, 0).why_cpu, "");
}

TEST(SelectDevice, AutoSaysWhyItIsTheCpu) {
  EXPECT_EQ(select_device(kAuto, kNone, 0).why_cpu, "no loader");
  EXPECT_FALSE(select_device(kAuto, kEmulated, 0).index);
  EXPECT_EQ(select_device(kAuto, kEmulated, 0).why_cpu, "vulkan:0 (llvmpipe) is no GPU");
  const vulkan::DeviceList refused{.devices = {kMixed.devices[0], kMixed.devices[1]}, .lack = ""};
  EXPECT_EQ(select_device(kAuto, refused, 0).why_cpu,
            "vulkan:0 (llvmpipe) is no GPU; vulkan:1 (old) cannot be used: it speaks Vulkan 1.1");
}

TEST(SelectDevice, RanksOfAHostTakeItsGpusInTurn) {
  for (const auto& [local_rank, index] : {std::pair(0, 2), std::pair(1, 3), std::pair(2, 2), std::pair(7, 3)})
    EXPECT_EQ(select_device(kVulkan, kMixed, local_rank).index, index);
  EXPECT_EQ(select_device(kVulkan, kEmulated, 3).index, 0) << "without a GPU, what there is";
  expect_error([] { select_device(kVulkan, kNone, 0); }, ErrorCode::kFailedPrecondition, {"no loader"});
  const vulkan::DeviceList refused{.devices = {kMixed.devices[1]}, .lack = ""};
  expect_error([&] { select_device(kVulkan, refused, 0); }, ErrorCode::kFailedPrecondition,
               {"vulkan:0 (old) cannot be used", "Vulkan 1.1"});
}

TEST(SelectDevice, ANumberIsTaken) {
  for (const int index : {0, 1, 9}) EXPECT_EQ(select_device({Kind::kVulkan, index}, kMixed, 1).index, index);
}

TEST(OpenComputeDevice, ComplaintsNameTheOption) {
  std::string why_cpu;
  EXPECT_FALSE(open_compute_device({}, 0, DType::kF32, {}, why_cpu));
  EXPECT_EQ(why_cpu, "");
  const DeviceChoice missing{Kind::kVulkan, DeviceChoice::kMaxIndex};
  try {
    open_compute_device(missing, 0, DType::kF32, {}, why_cpu);
    ADD_FAILURE() << "there is no such device";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("--device vulkan:255: ")) << error.what();
  }
}

/// A device of which only the memory is asked for.
class SmallDevice final : public vulkan::OpenDevice {
 public:
  explicit SmallDevice(uint64_t free_bytes) : free_bytes_(free_bytes) {}
  const Backend& backend() const override { throw_invalid("has none"); }
  std::unique_ptr<Stream> make_stream(ThreadPool&) override { return nullptr; }
  void rehearse(Stream&, const std::function<void()>&) override {}
  int64_t scratch_bytes(const OpLimits&) const override { return 0; }
  void reserve_scratch(Stream&, const OpLimits&) override {}
  const vulkan::DeviceInfo& info() const override { return info_; }
  uint64_t free_bytes() const override { return free_bytes_; }
  uint64_t progress() noexcept override { return 0; }
  double read_bytes_per_s(std::size_t) override { return 0; }
  double flops_per_s(DType) override { return 0; }
  std::string multiply_unit(DType) const override { return "none"; }
  void add_fault(const char* ability) { info_.faults.emplace_back(ability); }

 private:
  vulkan::DeviceInfo info_ = device("Small", "discrete GPU");
  uint64_t free_bytes_;
};

TEST(ComputeDevice, WarnsOfWhatItDoesWithout) {
  auto open = std::make_unique<SmallDevice>(0);
  SmallDevice& small = *open;
  const ComputeDevice device{.index = 2, .open = std::move(open)};
  EXPECT_EQ(device.warning(), "");
  small.add_fault("bf16 matrices 16x16x16");
  small.add_fault("int8 matrices 16x16x32");
  EXPECT_EQ(
      device.warning(),
      "--device vulkan:2 (Small): computing without its bf16 matrices 16x16x16 and int8 matrices 16x16x32: a row's result "
      "depends on the rows beside it there");
}

TEST(ComputeDevice, MemoryThatIsNotThereIsAskedForByName) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const ComputeDevice small{.index = 2, .open = std::make_unique<SmallDevice>(1000 * kMiB)};
  EXPECT_NO_THROW(small.require_memory(875 * kMiB, "all but an eighth"));
  expect_error([&] { small.require_memory(876 * kMiB, "the model"); }, ErrorCode::kResourceExhausted,
               {"--device vulkan:2 (Small): the model needs 876 MiB of its memory; available: 875 MiB"});
}

}  // namespace
}  // namespace ferry
