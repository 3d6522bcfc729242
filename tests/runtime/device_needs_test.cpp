#include "runtime/device_needs.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "moe/device_token_dispatcher.h"
#include "runtime/host_logits.h"
#include "runtime/model/trunk.h"
#include "runtime/model/weights_loader.h"
#include "runtime/mtp_drafter.h"
#include "tests/support/expect_error.h"
#include "tests/support/load_experts.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

/// The host's memory, counted in pieces of 256 bytes. It may say that it is a device's, where nothing is computed.
class TalliedMemory final : public Memory {
 public:
  explicit TalliedMemory(Space space = Space::kHost) : space_(space) {}
  Space space() const override { return space_; }
  Storage allocate(std::size_t size) override {
    num_bytes_ += static_cast<int64_t>((size + 255) / 256 * 256);
    return host_memory().allocate(size);
  }
  void fill(Address<std::byte> to, std::span<const std::byte> from) override { host_memory().fill(to, from); }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  Space space_;
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

/// A worker's experts and what its buffers take: of the first of three ranks that share them.
WorkerNeeds tally_worker(const std::filesystem::path& dir, const ModelConfig& config, const Quantization& quantization,
                         const ReplyWriter::Options& replies) {
  ThreadPool pool(1);
  const Backend loading = select_backend("auto", "auto", replies.dtype);
  const Checkpoint checkpoint = Checkpoint::open(dir);
  const std::array<Rank, 3> ranks = {Rank{1}, Rank{2}, Rank{3}};
  const ExpertBank bank =
      load_experts(checkpoint, config, ExpertMap::contiguous(config.moe.num_experts, ranks), 0, loading.matmul(), pool,
                   {.dtype = replies.dtype, .weights = {.quantization = quantization}});
  TalliedMemory memory(Space::kDevice);
  const Backend backend("tallied", available_op_tables(), nullptr, memory);
  Stream stream(backend, pool);
  const ReplyWriter writer(bank, stream, replies);
  int64_t weights = 0;
  for (int64_t layer = 0; layer < bank.num_layers(); ++layer) {
    for (const auto matrices : {bank.gate_up(layer), bank.down(layer)}) {
      for (const PackedMatrix* matrix : matrices) weights += matrix != nullptr ? matrix->packed_bytes() : 0;  // a dense layer
    }
  }
  return {.weights = weights, .rows = memory.num_bytes()};
}

TEST(DeviceNeeds, OfAWorkerAreCountedToTheByte) {
  for (const char* model : {"qwen3_5_moe", "lfm2_moe"}) {
    for (const char* quantize : {"none", "w8a8"}) {
      for (const CombineMode combine : {CombineMode::kExact, CombineMode::kFast}) {
        const std::filesystem::path dir = test::source_folder() / "tests" / "golden" / model;
        ModelConfig config = load_config(dir);
        config.mtp = lacks_mtp(Checkpoint::open(dir), config, {}).empty();
        const Quantization quantization = parse_quantization(quantize);
        const ReplyWriter::Options replies{
            .max_tokens = 96, .top_k = config.moe.top_k, .dtype = DType::kF32, .combine = combine};
        const WorkerNeeds real = tally_worker(dir, config, quantization, replies),
                          told = worker_needs(config, quantization, (config.moe.num_experts + 2) / 3, replies);
        EXPECT_EQ(told.rows, real.rows) << model << " " << quantize;
        EXPECT_EQ(told.weights, real.weights) << model << " " << quantize;
      }
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
