#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "kernels/vulkan/backend.h"
#include "tests/bench/vulkan_bench.h"

// The ops of Qwen3.5-35B-A3B that are no products, on a Vulkan device, each checked before it is timed: attention with matrix
// units against attention without, and the last rows alone against the same rows in the call, of which all bits must be equal;
// the others against the CPU.
//
//   vulkan_ops_bench [--device I] [--quick] [--only TEXT]
//
// --quick: tiny sizes; --only: ops whose line has the text. Lines say
//
//   op and shape: us of a call behind another, TFLOP/s or GB/s

namespace ferry::bench {
namespace {

using vulkan::PhysicalDevice;
using vulkan::VulkanBackend;

constexpr int64_t kBlockTokens = 16;
constexpr int64_t kNumHeads = 16, kNumKvHeads = 2, kHeadDim = 256;  // of attention
constexpr int64_t kKHeads = 16, kVHeads = 32, kDeltaDim = 128;      // of DeltaNet
constexpr int64_t kQkvWidth = (2 * kKHeads + kVHeads) * kDeltaDim;
constexpr int64_t kHidden = 2048, kNumExperts = 256, kTopK = 8, kExpertWidth = 512;

struct AttentionShape {
  int64_t num_sequences, num_tokens, num_past;
};
const std::vector<AttentionShape> kAttention = {{1, 1, 63},    {1, 1, 1023},  {1, 1, 8191},    {1, 1, 32767},
                                                {16, 1, 1023}, {64, 1, 1023}, {1, 16, 1008},   {1, 64, 960},
                                                {1, 64, 8128}, {1, 2048, 0},  {1, 2048, 6144}, {1, 8192, 0}};
const std::vector<AttentionShape> kQuickAttention = {{1, 1, 200}, {3, 1, 70}, {1, 40, 120}};
const std::vector<int64_t> kTokens = {1, 64, 512, 2048, 8192}, kQuickTokens = {1, 70};

/// A device with a stream.
struct Worker {
  explicit Worker(const PhysicalDevice& physical) : device(physical, DType::kBF16), stream(device.make_stream(pool)) {}

  Memory& memory() { return device.backend().memory(); }
  Matrix take(const Matrix& host) {
    Matrix copy(memory(), host.dtype(), host.rows(), host.cols());
    memory().fill({copy.view().data, Space::kDevice},
                  {host.view().data, static_cast<std::size_t>(host.rows() * host.cols() * dtype_bytes(host.dtype()))});
    return copy;
  }
  Matrix fetch(ConstMatrixView view) {
    Matrix host(view.dtype, view.rows, view.cols);
    copy_rows(*stream, view, host.view());
    stream->wait(stream->submit());
    return host;
  }

  ThreadPool pool{2};
  VulkanBackend device;
  std::unique_ptr<Stream> stream;
};

/// Uniform in [-largest, largest).
Matrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint64_t seed, float largest) {
  Matrix matrix(dtype, rows, cols);
  uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      T* row = matrix.view().row<T>(r);
      for (int64_t c = 0; c < cols; ++c) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        row[c] = from_float<T>(static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31F * largest);
      }
    }
  });
  return matrix;
}

double element(ConstMatrixView view, int64_t row, int64_t col) {
  if (view.dtype == DType::kBF16) return to_float(view.row<bfloat16>(row)[col]);
  if (view.dtype == DType::kF32) return view.row<float>(row)[col];
  return reinterpret_cast<const int8_t*>(view.row_bytes(row))[col];
}

/// Every element within `absolute`, or `relative` of itself.
void require_close(ConstMatrixView expected, ConstMatrixView got, double absolute, double relative, const std::string& what) {
  for (int64_t r = 0; r < got.rows; ++r) {
    for (int64_t c = 0; c < got.cols; ++c) {
      const double e = element(expected, r, c), g = element(got, r, c);
      if (!(std::abs(e - g) <= absolute + relative * std::abs(e)))
        fail(what + ": " + std::to_string(g) + " instead of " + std::to_string(e) + " in row " + std::to_string(r) +
             ", column " + std::to_string(c));
    }
  }
}

void print(const std::string& what, double seconds, double work, const char* unit) {
  std::printf("%-44s %10.1f us %9.1f %s\n", what.c_str(), seconds * 1e6, work / seconds, unit);
  std::fflush(stdout);
}

/// Queries and caches of some sequences.
class AttentionScene {
 public:
  explicit AttentionScene(const AttentionShape& shape)
      : shape_(shape),
        blocks_each_((shape.num_past + shape.num_tokens + kBlockTokens - 1) / kBlockTokens),
        queries_(random_matrix(DType::kBF16, shape.num_sequences * shape.num_tokens, kNumHeads * kHeadDim, 1, 2.0F)),
        keys_(random_matrix(DType::kBF16, num_cache_rows(), kHeadDim, 2, 1.0F)),
        values_(random_matrix(DType::kBF16, num_cache_rows(), kHeadDim, 3, 1.0F)),
        ids_(static_cast<std::size_t>(shape.num_sequences * blocks_each_)) {
    std::iota(ids_.rbegin(), ids_.rend(), 0);
    for (int64_t s = 0; s < shape.num_sequences; ++s) {
      tables_.push_back(ids_.data() + s * blocks_each_);
      spans_.push_back({s * shape.num_tokens, shape.num_tokens, shape.num_past});
    }
  }

  const Matrix& queries() const { return queries_; }
  const std::vector<SequenceSpan>& spans() const { return spans_; }
  std::string name() const {
    return "attention " + std::to_string(shape_.num_sequences) + " x " + std::to_string(shape_.num_tokens) + " behind " +
           std::to_string(shape_.num_past);
  }
  double operations() const {
    const auto tokens = static_cast<double>(shape_.num_tokens), past = static_cast<double>(shape_.num_past);
    return 4.0 * static_cast<double>(shape_.num_sequences * kNumHeads * kHeadDim) * tokens * (past + (tokens + 1) / 2);
  }

  /// What the scene is on a device.
  struct Copy {
    Matrix queries, keys, values, out;
  };
  Copy take_to(Worker& worker) const {
    return {worker.take(queries_), worker.take(keys_), worker.take(values_),
            Matrix(worker.memory(), DType::kBF16, queries_.rows(), queries_.cols())};
  }
  void run(Worker& worker, Copy& copy, std::span<const SequenceSpan> spans) const {
    attention(*worker.stream, {.q = copy.queries.view(),
                               .cache = {{copy.keys.view().data, Space::kDevice},
                                         {copy.values.view().data, Space::kDevice},
                                         DType::kBF16,
                                         kNumKvHeads,
                                         kBlockTokens,
                                         kHeadDim},
                               .sequences = spans,
                               .block_tables = std::span(tables_).first(spans.size()),
                               .num_heads = kNumHeads,
                               .out = copy.out.view()});
  }

 private:
  int64_t num_cache_rows() const { return shape_.num_sequences * blocks_each_ * kNumKvHeads * kBlockTokens; }

  AttentionShape shape_;
  int64_t blocks_each_;
  Matrix queries_, keys_, values_;
  std::vector<int32_t> ids_;
  std::vector<const int32_t*> tables_;
  std::vector<SequenceSpan> spans_;
};

void check_rows_alone(Worker& worker, const AttentionScene& scene, AttentionScene::Copy& copy, const Matrix& whole) {
  const SequenceSpan span = scene.spans()[0];
  for (const int64_t token : {int64_t{0}, span.num_tokens / 3, span.num_tokens / 2 + 1, span.num_tokens - 1}) {
    if (token >= span.num_tokens) continue;
    const SequenceSpan one{span.first_row + token, 1, span.num_past + token};
    scene.run(worker, copy, {&one, 1});
    const Matrix row = worker.fetch(copy.out.view().rows_from(token, 1));
    if (std::memcmp(row.view().data, whole.view().row_bytes(token), static_cast<std::size_t>(row.cols() * 2)) != 0)
      fail(scene.name() + ": row " + std::to_string(token) + " has other bits alone");
  }
}

void run_attention(Worker& worker, Worker& plain, const AttentionShape& shape) {
  const AttentionScene scene(shape);
  AttentionScene::Copy copy = scene.take_to(worker);
  scene.run(worker, copy, scene.spans());
  const Matrix whole = worker.fetch(copy.out.view());
  {
    AttentionScene::Copy plain_copy = scene.take_to(plain);
    scene.run(plain, plain_copy, scene.spans());
    const Matrix expected = plain.fetch(plain_copy.out.view());
    require_close(expected.view(), whole.view(), 1.0 / 512, 1.0 / 64, scene.name());
  }
  check_rows_alone(worker, scene, copy, whole);
  print(scene.name(), time_calls(*worker.stream, [&](int64_t) { scene.run(worker, copy, scene.spans()); }),
        scene.operations() * 1e-12, "TFLOP/s");
}

/// The chunk form.
void run_delta_rule(Worker& worker, int64_t tokens) {
  const std::string name = "delta rule " + std::to_string(tokens);
  const Matrix qkv = random_matrix(DType::kBF16, tokens, kQkvWidth, 4, 1.0F);
  Matrix decay = random_matrix(DType::kF32, tokens, kVHeads, 5, 0.5F),
         beta = random_matrix(DType::kF32, tokens, kVHeads, 6, 0.5F);
  for (int64_t i = 0; i < tokens * kVHeads; ++i) {
    decay.view().row<float>(0)[i] -= 0.5F;
    beta.view().row<float>(0)[i] += 0.5F;
  }
  Matrix state = random_matrix(DType::kF32, kVHeads * kDeltaDim, kDeltaDim, 7, 0.1F);
  const SequenceSpan span{0, tokens, 0};
  const auto call = [&](Stream& stream, const Matrix& rows, Matrix& decays, Matrix& betas, Matrix& states, Matrix& out) {
    float* const first_state = reinterpret_cast<float*>(states.view().data);
    const Space space = rows.view().space;
    gated_delta_rule(stream, {.qkv = rows.view(),
                              .decay = {reinterpret_cast<float*>(decays.view().data), space},
                              .beta = {reinterpret_cast<float*>(betas.view().data), space},
                              .num_k_heads = kKHeads,
                              .num_v_heads = kVHeads,
                              .k_dim = kDeltaDim,
                              .v_dim = kDeltaDim,
                              .chunk = 64,
                              .sequences = {&span, 1},
                              .states = {&first_state, 1},
                              .held = {},
                              .out = out.view()});
  };
  Matrix rows = worker.take(qkv), decays = worker.take(decay), betas = worker.take(beta), states = worker.take(state),
         out(worker.memory(), DType::kBF16, tokens, kVHeads * kDeltaDim);
  call(*worker.stream, rows, decays, betas, states, out);
  const Matrix got = worker.fetch(out.view());
  const Backend cpu = select_backend("auto", "auto", DType::kBF16);
  Stream host(cpu, worker.pool);
  Matrix expected(DType::kBF16, tokens, kVHeads * kDeltaDim);
  call(host, qkv, decay, beta, state, expected);
  require_close(expected.view(), got.view(), 1e-4, 1.0 / 128, name);
  const double operations = 7.0 * static_cast<double>(tokens * kVHeads * kDeltaDim * kDeltaDim);
  print(name, time_calls(*worker.stream, [&](int64_t) { call(*worker.stream, rows, decays, betas, states, out); }),
        operations * 1e-12, "TFLOP/s of the recurrence");
}

void run_gated_norm(Worker& worker, int64_t tokens) {
  const std::string name = "gated_rms_norm " + std::to_string(tokens);
  const int64_t num_rows = tokens * kVHeads;
  const Matrix x = random_matrix(DType::kBF16, num_rows, kDeltaDim, 8, 1.0F),
               gate = random_matrix(DType::kBF16, num_rows, kDeltaDim, 9, 3.0F);
  const Matrix weight = random_matrix(DType::kF32, 1, kDeltaDim, 10, 1.0F);
  const auto call = [&](Stream& stream, const Matrix& rows, const Matrix& gates, const Matrix& weights, Matrix& out) {
    gated_rms_norm(stream, {.x = rows.view(),
                            .gate = gates.view(),
                            .weight = {reinterpret_cast<const float*>(weights.view().data), weights.view().space},
                            .weight_dtype = DType::kF32,
                            .eps = 1e-6F,
                            .out = out.view()});
  };
  const Matrix rows = worker.take(x), gates = worker.take(gate), weights = worker.take(weight);
  Matrix out(worker.memory(), DType::kBF16, num_rows, kDeltaDim), expected(DType::kBF16, num_rows, kDeltaDim);
  call(*worker.stream, rows, gates, weights, out);
  const Backend cpu = select_backend("auto", "auto", DType::kBF16);
  Stream host(cpu, worker.pool);
  call(host, x, gate, weight, expected);
  require_close(expected.view(), worker.fetch(out.view()).view(), 1e-6, 1.0 / 64, name);
  print(name, time_calls(*worker.stream, [&](int64_t) { call(*worker.stream, rows, gates, weights, out); }),
        6e-9 * static_cast<double>(num_rows * kDeltaDim), "GB/s");
}

void run_convolution(Worker& worker, int64_t tokens) {
  constexpr int64_t kKernel = 4;
  const std::string name = "causal_conv1d " + std::to_string(tokens);
  const Matrix x = random_matrix(DType::kBF16, tokens, kQkvWidth, 11, 1.0F),
               weight = random_matrix(DType::kF32, kQkvWidth, kKernel, 12, 1.0F);
  Matrix state = random_matrix(DType::kBF16, kKernel - 1, kQkvWidth, 13, 1.0F);
  const SequenceSpan span{0, tokens, 0};
  const auto call = [&](Stream& stream, const Matrix& rows, const Matrix& weights, Matrix& states, Matrix& out) {
    std::byte* const first_state = states.view().data;
    causal_conv1d(stream, {.x = rows.view(),
                           .weight = {reinterpret_cast<const float*>(weights.view().data), weights.view().space},
                           .kernel = kKernel,
                           .activation = Activation::kSilu,
                           .sequences = {&span, 1},
                           .states = {&first_state, 1},
                           .held = {},
                           .out = out.view()});
  };
  const Matrix rows = worker.take(x), weights = worker.take(weight);
  Matrix states = worker.take(state), out(worker.memory(), DType::kBF16, tokens, kQkvWidth),
         expected(DType::kBF16, tokens, kQkvWidth);
  call(*worker.stream, rows, weights, states, out);
  const Backend cpu = select_backend("auto", "auto", DType::kBF16);
  Stream host(cpu, worker.pool);
  call(host, x, weight, state, expected);
  require_close(expected.view(), worker.fetch(out.view()).view(), 1e-6, 1.0 / 64, name);
  print(name, time_calls(*worker.stream, [&](int64_t) { call(*worker.stream, rows, weights, states, out); }),
        4e-9 * static_cast<double>(tokens * kQkvWidth), "GB/s");
}

/// An op of a decode step on matrices of its own: what goes in, and room for what comes out.
struct DecodeCase {
  std::string name;
  std::vector<Matrix> matrices;
  std::function<void(Stream&, std::vector<Matrix>&)> call;
  std::vector<std::size_t> results;  // which of the matrices are checked
  double bytes = 0;                  // that a call must move
};

void run_decode(Worker& worker, DecodeCase scene) {
  std::vector<Matrix> copies;
  for (const Matrix& matrix : scene.matrices) copies.push_back(worker.take(matrix));
  scene.call(*worker.stream, copies);
  const Backend cpu = select_backend("auto", "auto", DType::kBF16);
  Stream host(cpu, worker.pool);
  scene.call(host, scene.matrices);
  for (const std::size_t i : scene.results)
    require_close(scene.matrices[i].view(), worker.fetch(copies[i].view()).view(), 1e-6, 1.0 / 64,
                  scene.name + ", matrix " + std::to_string(i));
  print(scene.name, time_calls(*worker.stream, [&](int64_t) { scene.call(*worker.stream, copies); }), scene.bytes * 1e-9,
        "GB/s");
}

template <class T>
Address<T> address_of(Matrix& matrix) {
  return {reinterpret_cast<T*>(matrix.view().data), matrix.view().space};
}

/// What a block begins with: the residual takes in rows, or what experts come to; its norm, and the codes of that.
DecodeCase block_begin(int64_t tokens, bool has_experts) {
  DecodeCase scene{.name = std::string("decode: residual_norm ") + (has_experts ? "of experts " : "") + std::to_string(tokens),
                   .results = {0, 7}};
  const int64_t num_slots = has_experts ? tokens * kTopK : tokens;
  Matrix slot_rows(DType::kF32, tokens, kTopK);
  for (int64_t i = 0; i < tokens * kTopK; ++i)
    address_of<int32_t>(slot_rows).host()[i] = static_cast<int32_t>(tokens * kTopK - 1 - i);
  scene.matrices.push_back(random_matrix(DType::kBF16, tokens, kHidden, 21, 1.0F));
  scene.matrices.push_back(random_matrix(DType::kBF16, num_slots, kHidden, 22, 1.0F));
  scene.matrices.push_back(random_matrix(DType::kBF16, tokens, kHidden, 23, 1.0F));  // the shared expert's
  scene.matrices.push_back(random_matrix(DType::kBF16, tokens, 1, 24, 1.0F));
  scene.matrices.push_back(random_matrix(DType::kF32, 1, kHidden, 25, 1.0F));
  scene.matrices.push_back(random_matrix(DType::kF32, tokens, kTopK, 26, 0.2F));
  scene.matrices.push_back(std::move(slot_rows));
  scene.matrices.emplace_back(DType::kBF16, tokens, kHidden);  // the norm
  scene.matrices.emplace_back(DType::kI8, tokens, kHidden);
  scene.matrices.emplace_back(DType::kF32, tokens, 1);
  scene.matrices.emplace_back(DType::kBF16, tokens, kHidden);  // what experts come to
  scene.call = [has_experts](Stream& stream, std::vector<Matrix>& m) {
    const MatrixView sum = m[10].view(), normed = m[7].view();
    const ExpertSumArgs experts{.combine = {.slot_rows = {},
                                            .rows = m[1].view(),
                                            .slot_row = address_of<int32_t>(m[6]),
                                            .slot_weights = address_of<float>(m[5]),
                                            .num_slots = kTopK,
                                            .out = sum},
                                .merge = {.routed = sum, .shared = m[2].view(), .gate = m[3].view(), .out = sum}};
    residual_norm(stream, {.residual = m[0].view(),
                           .added = has_experts ? sum : m[1].view(),
                           .experts = has_experts ? &experts : nullptr,
                           .norm = {.x = m[0].view(), .weight = address_of<float>(m[4]), .eps = 1e-6F, .out = normed},
                           .codes = {.x = normed, .codes = m[8].view(), .scales = address_of<float>(m[9])}});
  };
  scene.bytes = 2.0 * static_cast<double>(kHidden * (num_slots + 4 * tokens));
  return scene;
}

DecodeCase quantized_rows(int64_t rows, int64_t cols) {
  DecodeCase scene{.name = "decode: quantize_rows " + std::to_string(rows) + " x " + std::to_string(cols), .results = {1, 2}};
  scene.matrices.push_back(random_matrix(DType::kBF16, rows, cols, 31, 1.0F));
  scene.matrices.emplace_back(DType::kI8, rows, cols);
  scene.matrices.emplace_back(DType::kF32, rows, 1);
  scene.call = [](Stream& stream, std::vector<Matrix>& m) {
    quantize_rows(stream, {.x = m[0].view(), .codes = m[1].view(), .scales = address_of<float>(m[2])});
  };
  scene.bytes = 3.0 * static_cast<double>(rows * cols);
  return scene;
}

DecodeCase expert_choice(int64_t tokens) {
  DecodeCase scene{.name = "decode: choose_experts " + std::to_string(tokens), .results = {2}};
  const int64_t num_slots = tokens * kTopK;
  scene.matrices.push_back(random_matrix(DType::kBF16, tokens, kNumExperts, 41, 2.0F));
  for (const int64_t cols : {num_slots, num_slots, num_slots, num_slots, kNumExperts, 3 * num_slots, kNumExperts})
    scene.matrices.emplace_back(DType::kF32, 1, cols);
  scene.call = [](Stream& stream, std::vector<Matrix>& m) {
    choose_experts(stream, {.router = {.logits = m[0].view(),
                                       .top_k = kTopK,
                                       .topk_idx = address_of<int32_t>(m[1]),
                                       .topk_weights = address_of<float>(m[2])},
                            .rows = {.topk_idx = address_of<int32_t>(m[1]),
                                     .num_tokens = m[0].rows(),
                                     .top_k = kTopK,
                                     .num_experts = kNumExperts,
                                     .row_token = address_of<int32_t>(m[3]),
                                     .slot_row = address_of<int32_t>(m[4]),
                                     .counts = address_of<int32_t>(m[5]),
                                     .row_runs = address_of<RowRun>(m[6]),
                                     .row_totals = address_of<uint32_t>(m[7])}});
  };
  scene.bytes = 2.0 * static_cast<double>(tokens * kNumExperts);
  return scene;
}

/// A row each of some sequences.
DecodeCase delta_mix(int64_t tokens) {
  DecodeCase scene{.name = "decode: gated_delta_mix " + std::to_string(tokens), .results = {9}};
  const auto add = [&](DType dtype, int64_t rows, int64_t cols, float largest) {
    scene.matrices.push_back(random_matrix(dtype, rows, cols, 51 + scene.matrices.size(), largest));
  };
  add(DType::kBF16, tokens, kQkvWidth, 1.0F);
  add(DType::kF32, kQkvWidth, 4, 1.0F);                             // the convolution's weights
  add(DType::kBF16, tokens * 3, kQkvWidth, 1.0F);                   // and states
  add(DType::kBF16, tokens, kVHeads, 1.0F);                         // a
  add(DType::kBF16, tokens, kVHeads, 1.0F);                         // b
  add(DType::kF32, 2, kVHeads, 1.0F);                               // a_log, dt_bias
  add(DType::kF32, tokens * kVHeads * kDeltaDim, kDeltaDim, 0.3F);  // states
  add(DType::kBF16, tokens * kVHeads, kDeltaDim, 3.0F);             // gate
  add(DType::kF32, 1, kDeltaDim, 1.0F);                             // the norm's weights
  add(DType::kBF16, tokens, kVHeads * kDeltaDim, 0.0F);             // out
  add(DType::kBF16, tokens, kQkvWidth, 0.0F);                       // what comes between
  add(DType::kF32, 2 * tokens, kVHeads, 0.0F);
  scene.call = [tokens](Stream& stream, std::vector<Matrix>& m) {
    std::vector<SequenceSpan> spans;
    std::vector<std::byte*> conv_states;
    std::vector<float*> states;
    for (int64_t s = 0; s < tokens; ++s) {
      spans.push_back({.first_row = s, .num_tokens = 1, .num_past = 9, .form = DeltaForm::kRecurrent});
      conv_states.push_back(m[2].view().row_address(3 * s));
      states.push_back(reinterpret_cast<float*>(m[6].view().row_address(s * kVHeads * kDeltaDim)));
    }
    const MatrixView heads = m[9].view().split_rows(kVHeads);
    const Address<float> decay = address_of<float>(m[11]), beta = decay + tokens * kVHeads;
    gated_delta_mix(stream, {.conv = {.x = m[0].view(),
                                      .weight = address_of<float>(m[1]),
                                      .kernel = 4,
                                      .sequences = spans,
                                      .states = conv_states,
                                      .held = {},
                                      .out = m[10].view()},
                             .gates = {.a = m[3].view(),
                                       .b = m[4].view(),
                                       .a_log = address_of<float>(m[5]),
                                       .dt_bias = address_of<float>(m[5]) + kVHeads,
                                       .decay = decay,
                                       .beta = beta},
                             .rule = {.qkv = m[10].view(),
                                      .decay = decay,
                                      .beta = beta,
                                      .num_k_heads = kKHeads,
                                      .num_v_heads = kVHeads,
                                      .k_dim = kDeltaDim,
                                      .v_dim = kDeltaDim,
                                      .chunk = 64,
                                      .sequences = spans,
                                      .states = states,
                                      .held = {},
                                      .out = m[9].view()},
                             .norm = {.x = heads,
                                      .gate = m[7].view(),
                                      .weight = address_of<float>(m[8]),
                                      .weight_dtype = DType::kF32,
                                      .eps = 1e-6F,
                                      .out = heads}});
  };
  scene.bytes = 8.0 * static_cast<double>(tokens * kVHeads * kDeltaDim * kDeltaDim);
  return scene;
}

int run(const PhysicalDevice& device, const VulkanOptions& options) {
  Worker worker(device), plain(without_matrices(device));
  bool is_right = true;
  const auto attempt = [&](const auto& run_case) {
    try {
      run_case();
    } catch (const Error& error) {
      std::printf("%s\n", error.what());
      is_right = false;
    }
  };
  if (options.wants("attention")) {
    for (const AttentionShape& shape : options.is_quick ? kQuickAttention : kAttention)
      attempt([&] { run_attention(worker, plain, shape); });
  }
  for (const int64_t tokens : options.is_quick ? kQuickTokens : kTokens) {
    if (options.wants("delta rule")) attempt([&] { run_delta_rule(worker, tokens); });
    if (options.wants("gated_rms_norm")) attempt([&] { run_gated_norm(worker, tokens); });
    if (options.wants("causal_conv1d")) attempt([&] { run_convolution(worker, tokens); });
  }
  if (options.wants("decode")) {
    for (const int64_t tokens : {1, 4}) {
      attempt([&] { run_decode(worker, block_begin(tokens, false)); });
      attempt([&] { run_decode(worker, block_begin(tokens, true)); });
      attempt([&] { run_decode(worker, quantized_rows(tokens, kVHeads * kDeltaDim)); });
      attempt([&] { run_decode(worker, quantized_rows(tokens * kTopK, kExpertWidth)); });
      attempt([&] { run_decode(worker, expert_choice(tokens)); });
      attempt([&] { run_decode(worker, delta_mix(tokens)); });
    }
  }
  return is_right ? 0 : 1;
}

}  // namespace

int run_vulkan_ops_bench(int argc, char** argv) { return run_program(argc, argv, {.name = "vulkan_ops_bench", .run = run}); }

}  // namespace ferry::bench

int main(int argc, char** argv) { return ferry::bench::run_vulkan_ops_bench(argc, argv); }
