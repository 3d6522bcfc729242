#include "tests/support/apart_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

namespace ferry::test {
namespace {

template <class T>
using Kept = std::shared_ptr<std::vector<T>>;

/// A copy of what a span shows now; the span then shows that.
template <class T>
Kept<std::remove_const_t<T>> keep(std::span<T>& span) {
  auto kept = std::make_shared<std::vector<std::remove_const_t<T>>>(span.begin(), span.end());
  span = *kept;
  return kept;
}

/// Block tables, and what they point to.
struct Tables {
  Tables(std::span<const SequenceSpan> sequences, std::span<const int32_t* const>& tables, int64_t block_tokens) {
    for (std::size_t s = 0; s < tables.size(); ++s) {
      const int64_t num_tokens = sequences[s].num_past + sequences[s].num_tokens;
      blocks.emplace_back(tables[s], tables[s] + (num_tokens + block_tokens - 1) / block_tokens);
    }
    for (const std::vector<int32_t>& table : blocks) firsts.push_back(table.data());
    tables = firsts;
  }
  std::vector<std::vector<int32_t>> blocks;
  std::vector<const int32_t*> firsts;
};

// What of an op's arguments is read when the op is handed in.
template <class Args>
int keep_arrays(Args&) {
  return 0;
}
auto keep_arrays(EmbedArgs& args) { return keep(args.ids); }
template <class Args>
auto keep_sequences(Args& args) {
  auto tables = std::make_shared<Tables>(args.sequences, args.block_tables, args.cache.block_tokens);
  return std::pair(keep(args.sequences), std::move(tables));
}
auto keep_arrays(KvAppendArgs& args) { return keep_sequences(args); }
auto keep_arrays(AttentionArgs& args) { return keep_sequences(args); }
auto keep_arrays(CausalConv1dArgs& args) { return std::tuple(keep(args.sequences), keep(args.states), keep(args.held)); }
auto keep_arrays(GatedDeltaRuleArgs& args) { return std::tuple(keep(args.sequences), keep(args.states), keep(args.held)); }
auto keep_arrays(ArgmaxArgs& args) { return keep(args.rows); }
auto keep_arrays(GatherRowsArgs& args) { return keep(args.row_idx); }
auto keep_arrays(CombineArgs& args) { return keep(args.slot_rows); }
auto keep_arrays(SegmentAttentionArgs& args) { return keep(args.segment_ends); }
auto keep_arrays(GroupedMatmulArgs& args) { return std::pair(keep(args.counts), keep(args.weights)); }

template <auto kOp>
struct Recorded;
template <class Args, Op<Args> OpTable::*kOp>
struct Recorded<kOp> {
  static void run(Stream& stream, const Args& args) {
    Args taken = args;
    auto arrays = keep_arrays(taken);
    static_cast<ApartStream&>(stream).record([taken, arrays](Stream& kernels) { kernels.backend().run(kOp, kernels, taken); });
  }
};
template <auto kOp>
constexpr auto recorded = &Recorded<kOp>::run;

const OpTable kRecording = {
    .name = "apart",
    .embed = recorded<&OpTable::embed>,
    .rms_norm = recorded<&OpTable::rms_norm>,
    .add = recorded<&OpTable::add>,
    .multiply = recorded<&OpTable::multiply>,
    .gated_rms_norm = recorded<&OpTable::gated_rms_norm>,
    .rope = recorded<&OpTable::rope>,
    .kv_append = recorded<&OpTable::kv_append>,
    .attention = recorded<&OpTable::attention>,
    .sigmoid_gate = recorded<&OpTable::sigmoid_gate>,
    .causal_conv1d = recorded<&OpTable::causal_conv1d>,
    .delta_gates = recorded<&OpTable::delta_gates>,
    .gated_delta_rule = recorded<&OpTable::gated_delta_rule>,
    .router_topk = recorded<&OpTable::router_topk>,
    .argmax = recorded<&OpTable::argmax>,
    .swiglu = recorded<&OpTable::swiglu>,
    .gather_rows = recorded<&OpTable::gather_rows>,
    .expert_rows = recorded<&OpTable::expert_rows>,
    .combine = recorded<&OpTable::combine>,
    .shared_expert_merge = recorded<&OpTable::shared_expert_merge>,
    .quantize_rows = recorded<&OpTable::quantize_rows>,
    .layer_norm = recorded<&OpTable::layer_norm>,
    .add_bias = recorded<&OpTable::add_bias>,
    .vision_rope = recorded<&OpTable::vision_rope>,
    .segment_attention = recorded<&OpTable::segment_attention>,
};

/// Packs as another does, and lets that multiply later.
class RecordingMatmul final : public Matmul {
 public:
  explicit RecordingMatmul(Matmul& matmul) : matmul_(matmul) {}
  const char* name() const override { return "apart"; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use, ThreadPool* pool) override {
    return matmul_.pack(weights, use, pool);
  }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use, ThreadPool* pool) override {
    return matmul_.pack(weights, use, pool);
  }
  void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) override {
    GroupedMatmulArgs taken = args;
    auto arrays = keep_arrays(taken);
    static_cast<ApartStream&>(stream).record([taken, arrays](Stream& kernels) { ferry::grouped_matmul(kernels, taken); });
  }

 private:
  Matmul& matmul_;
};

}  // namespace

struct ApartMemory::Region {
  explicit Region(std::size_t num_bytes) : size(num_bytes) {
    void* mapped = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    data = static_cast<std::byte*>(mapped);
  }
  ~Region() { munmap(data, size); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::size_t size;
  std::byte* data;
};

Storage ApartMemory::allocate(std::size_t size) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto region = std::make_shared<Region>((size / page + 1) * page);
  const std::scoped_lock lock(mutex_);
  std::erase_if(regions_, [](const auto& known) { return known.expired(); });
  regions_.push_back(region);
  std::byte* data = region->data;
  return {data, size, Space::kDevice, std::move(region)};
}

void ApartMemory::let(bool is_open) {
  for (const std::weak_ptr<Region>& known : regions_) {
    const std::shared_ptr<Region> region = known.lock();
    if (region != nullptr) mprotect(region->data, region->size, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

void ApartMemory::with_access(const std::function<void()>& work) {
  const std::scoped_lock lock(mutex_);
  let(true);
  work();
  let(false);
}

void ApartMemory::fill(Address<std::byte> to, std::span<const std::byte> from) {
  with_access([&] { std::copy(from.begin(), from.end(), to.raw()); });
}

ApartDevice::ApartDevice(DType dtype)
    : kernels_(select_backend("auto", "auto", dtype)),
      backend_("apart", {&kRecording}, std::make_unique<RecordingMatmul>(kernels_.matmul()), memory_) {}

void ApartStream::copy(Address<const std::byte> from, Address<std::byte> to, std::size_t size) {
  std::byte* target = to.raw();
  if (from.space() == Space::kHost) {
    std::vector<std::byte> bytes(from.raw(), from.raw() + size);
    record([bytes = std::move(bytes), target](Stream&) { std::copy(bytes.begin(), bytes.end(), target); });
  } else {
    record([source = from.raw(), target, size](Stream&) { std::copy_n(source, size, target); });
  }
}

void ApartStream::clear(Address<std::byte> to, std::size_t size) {
  record([target = to.raw(), size](Stream&) { std::fill_n(target, size, std::byte{0}); });
}

Stream::Event ApartStream::submit() {
  num_recorded_ += std::ssize(recorded_);
  for (auto& work : recorded_) submitted_.push_back(std::move(work));
  recorded_.clear();
  return Event{++num_submits_};
}

void ApartStream::wait(Event event) {
  if (event == Event{}) return;
  device_.memory().with_access([&] {
    for (const auto& work : submitted_) work(kernels_);
  });
  submitted_.clear();
}

}  // namespace ferry::test
