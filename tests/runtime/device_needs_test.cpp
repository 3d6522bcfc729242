#include "runtime/device_needs.h"

#include <gtest/gtest.h>

#include <optional>

#include "moe/device_token_dispatcher.h"
#include "runtime/host_logits.h"
#include "runtime/model/trunk.h"
#include "runtime/model/weights_loader.h"
#include "runtime/mtp_drafter.h"
#include "tests/support/expect_error.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

/// The host's memory, counted in pieces of 256 bytes.
class TalliedMemory final : public Memory {
 public:
  Space space() const override { return Space::kHost; }
  Storage allocate(std::size_t size) override {
    num_bytes_ += static_cast<int64_t>((size + 255) / 256 * 256);
    return host_memory().allocate(size);
  }
  void fill(Address<std::byte> to, std::span<const std::byte> from) override { host_memory().fill(to, from); }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  int64_t num_bytes_ = 0;
};

/// What the buffers of a real decoder take.
int64_t tally(const std::filesystem::path& dir, const ModelConfig& config, const StepShape& shape) {
  ThreadPool pool(1);
  const Backend loading = select_backend("auto", "auto", shape.dtype);
  const Checkpoint checkpoint = Checkpoint::open(dir);
  const LoadOptions options{.dtype = shape.dtype, .weights = {.quantization = shape.quantization}};
  const TrunkWeights weights = load_trunk(checkpoint, config, loading, pool, options);
  const Rank here{0};
  const ExpertBank bank = load_experts(checkpoint, config, ExpertMap::contiguous(config.moe.num_experts, {&here, 1}), 0,
                                       loading.matmul(), pool, options);
  TalliedMemory memory;
  const Backend backend("tallied", available_op_tables(), nullptr, memory);
  Stream stream(backend, pool);
  Trunk trunk(config, weights, stream, shape.dtype, shape.limits);
  const HostLogits logits(stream, {.dtype = shape.dtype,
                                   .max_rows = shape.limits.max_logit_rows,
                                   .vocab_size = config.vocab_size,
                                   .vocab_size_effective = 90});
  std::optional<MtpDrafter> drafter;
  if (config.mtp) drafter.emplace(config, weights, trunk, shape.dtype, 100, shape.speculation);
  const DeviceTokenDispatcher dispatcher(
      bank, stream, {.max_tokens = shape.limits.max_tokens, .top_k = config.moe.top_k, .dtype = shape.dtype});
  return memory.num_bytes();
}

TEST(DeviceNeeds, RowsOfAStepAreCountedToTheByte) {
  for (const char* model : {"qwen3_5_moe", "qwen3_5", "lfm2_moe"}) {
    for (const char* quantize : {"none", "w8a8"}) {
      const std::filesystem::path dir = test::source_folder() / "tests" / "golden" / model;
      ModelConfig config = load_config(dir);
      config.mtp = lacks_mtp(Checkpoint::open(dir), config, {}).empty();
      StepShape shape{.dtype = DType::kF32,
                      .quantization = parse_quantization(quantize),
                      .limits = {.max_tokens = 96, .max_logit_rows = 8, .max_sequences = 4},
                      .speculation = {Speculation::Source::kMtp, 3},
                      .num_workers = 0};
      EXPECT_EQ(step_row_bytes(config, shape), tally(dir, config, shape)) << model << " " << quantize;
      shape.num_workers = 2;
      EXPECT_GT(step_row_bytes(config, shape), 0);
    }
  }
}

TEST(DeviceNeeds, WeightsAreThoseOfTheRank) {
  const std::filesystem::path dir = test::source_folder() / "tests" / "golden" / "qwen3_5_moe";
  const ModelConfig config = load_config(dir);
  const int64_t alone = device_weight_bytes(config, {}, DType::kBF16, 0),
                with_workers = device_weight_bytes(config, {}, DType::kBF16, 2);
  EXPECT_GT(alone, with_workers);
  EXPECT_GT(with_workers, config.vocab_size * config.hidden_dim * 2) << "the embedding is among them";
}

}  // namespace
}  // namespace ferry
