#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "tests/bench/bench.h"

// The gated delta rule with the heads of Qwen3.5-35B-A3B (32 of values) and of the 122B and 397B models (64), bf16: the chunk
// form of prefill, the recurrence of decode, alone and with drafts: rows that are held back, and rows of the last step that
// turned out right and are taken in first. Bytes are the rows and each state read and written once; operations are those that
// the form does at least: the recurrence 7 an element of the state, the chunk form K S, Q S and the update, K K^T and Q K^T up
// to their diagonal once for the value heads of a key head, and the two triangles' products. Units multiply all but these last
// with factors of bf16.

namespace {

using ferry::DType;
using ferry::Matrix;
using ferry::OpTable;
using ferry::SequenceSpan;
using ferry::bench::Bench;

constexpr int64_t kChunk = 64;
constexpr int64_t kMostRecurrentTokens = 8;
constexpr int64_t kOperationsPerElement = 7;  // decay 1; S^T k, S + k delta^T, S^T q 2 each
constexpr int64_t kOperationsOfProducts = 6;  // K S, Q S and the update, 2 each
constexpr double kTolerance = 2e-5;           // of the largest magnitude
constexpr double kUnitTolerance = 4e-3;       // of the chunk form by units whose products round their factors to bf16

struct Shape {
  const char* name;
  int64_t num_sequences, num_tokens;       // of each sequence
  int64_t num_held = 0, num_replayed = 0;  // likewise; the held ones are among its tokens, the replayed ones are not
  int64_t num_k_heads = 16, num_v_heads = 32, k_dim = 128, v_dim = 128;
};

const std::vector<Shape> kShapes = {{"chunk form, 512 tokens", 1, 512},
                                    {"chunk form, 2048 tokens", 1, 2048},
                                    {"recurrence, batch 1", 1, 1},
                                    {"recurrence, batch 16", 16, 1},
                                    {"recurrence, batch 64", 64, 1},
                                    {"16 x one row and 3 drafts", 16, 4, 3, 0, 16, 32},
                                    {"16 x one row and 3 drafts behind 3 right ones", 16, 4, 3, 3, 16, 32},
                                    {"16 x four rows", 16, 4, 0, 0, 16, 32},
                                    {"64 heads, 16 x one row", 16, 1, 0, 0, 16, 64},
                                    {"64 heads, 16 x one row and 3 drafts", 16, 4, 3, 0, 16, 64},
                                    {"64 heads, 16 x one row and 3 drafts behind 3 right ones", 16, 4, 3, 3, 16, 64},
                                    {"64 heads, 16 x four rows", 16, 4, 0, 0, 16, 64}};
const std::vector<Shape> kQuickShapes = {{"quick chunk form", 1, 70, 0, 0, 1, 3, 24, 40},
                                         {"quick recurrence", 3, 1, 0, 0, 2, 4, 16, 24},
                                         {"quick drafts", 3, 3, 2, 1, 2, 4, 16, 24},
                                         {"quick chunk form of whole tiles", 1, 70, 0, 0, 1, 2, 32, 32}};

/// Of units, which take only what they are better at.
bool is_unit(const OpTable& table) { return !table.embed.takes({}); }

/// A call's inputs.
class Scene {
 public:
  explicit Scene(const Shape& shape)
      : shape_(shape),
        num_rows_(shape.num_sequences * shape.num_tokens),
        num_all_rows_(num_rows_ + shape.num_sequences * shape.num_replayed),
        qkv_(ferry::bench::uniform_matrix(DType::kBF16, num_all_rows_,
                                          2 * shape.num_k_heads * shape.k_dim + shape.num_v_heads * shape.v_dim, 1)),
        out_(DType::kBF16, num_rows_, shape.num_v_heads * shape.v_dim) {
    std::minstd_rand generator(2);
    std::uniform_real_distribution<float> uniform(0.0F, 1.0F);
    for (int64_t i = 0; i < num_all_rows_ * shape.num_v_heads; ++i) {
      decay_.push_back(-2.0F * std::pow(uniform(generator), 3.0F));
      beta_.push_back(uniform(generator));
    }
    for (int64_t s = 0; s < shape.num_sequences; ++s) {
      spans_.push_back({s * shape.num_tokens, shape.num_tokens, shape.num_replayed,
                        is_chunk() ? ferry::DeltaForm::kChunk : ferry::DeltaForm::kRecurrent, shape.num_replayed,
                        shape.num_held});
      // The rows behind the batch's.
      const int64_t first = num_rows_ + s * shape.num_replayed;
      const auto at = static_cast<std::size_t>(first * shape.num_v_heads);
      held_.push_back({.qkv = qkv_.view().row_bytes(first), .decay = decay_.data() + at, .beta = beta_.data() + at});
    }
    reset_states();
  }

  void reset_states() {
    states_.clear();
    for (int64_t s = 0; s < shape_.num_sequences; ++s) {
      states_.push_back(ferry::bench::uniform_matrix(DType::kF32, shape_.num_v_heads * shape_.k_dim, shape_.v_dim,
                                                     static_cast<uint32_t>(3 + s), 0.3F));
    }
    pointers_.clear();
    for (Matrix& state : states_) pointers_.push_back(state.view().row<float>(0));
  }
  bool is_taken_by(const OpTable& table) { return table.gated_delta_rule.takes(args()); }
  void run(ferry::Stream& stream, const OpTable& table) { table.gated_delta_rule(stream, args()); }
  bool is_chunk() const { return shape_.num_tokens > kMostRecurrentTokens; }
  ferry::bench::Work work(const OpTable& table) const {
    const auto heads = static_cast<double>(shape_.num_v_heads), sequences = static_cast<double>(shape_.num_sequences);
    const double state_elements = heads * static_cast<double>(shape_.k_dim * shape_.v_dim);
    const auto rows = static_cast<double>(num_all_rows_);
    const double row_bytes = rows * (static_cast<double>(2 * (qkv_.cols() + out_.cols())) + 8 * heads);
    const double state_bytes = sequences * state_elements * 4;
    ferry::bench::Work work{.bytes = row_bytes + 2 * state_bytes,
                            .rewritten_bytes = 2 * state_bytes,
                            .working_set = row_bytes + state_bytes,
                            .operations = rows * state_elements * static_cast<double>(kOperationsPerElement),
                            .dtype = DType::kF32,
                            .kernels = table.name};
    if (!is_chunk()) return work;
    double pairs = 0;  // of a head, in both triangles together
    for (int64_t t = 0; t < shape_.num_tokens; t += kChunk) {
      const auto tokens = static_cast<double>(std::min(kChunk, shape_.num_tokens - t));
      pairs += sequences * tokens * tokens;
    }
    const double of_keys = 2 * pairs * static_cast<double>(shape_.num_k_heads * shape_.k_dim);
    const double of_triangles = 2 * pairs * heads * static_cast<double>(shape_.v_dim);
    work.operations = rows * state_elements * static_cast<double>(kOperationsOfProducts) + of_keys;
    work.vector_operations = of_triangles;
    if (is_unit(table)) work.dtype = DType::kBF16;
    return work;
  }
  const Matrix& out() const { return out_; }
  const std::vector<Matrix>& states() const { return states_; }

 private:
  ferry::GatedDeltaRuleArgs args() {
    return {.qkv = qkv_.top(num_rows_),
            .decay = decay_.data(),
            .beta = beta_.data(),
            .num_k_heads = shape_.num_k_heads,
            .num_v_heads = shape_.num_v_heads,
            .k_dim = shape_.k_dim,
            .v_dim = shape_.v_dim,
            .chunk = kChunk,
            .sequences = spans_,
            .states = pointers_,
            .held = held_,
            .out = out_.view()};
  }

  Shape shape_;
  int64_t num_rows_, num_all_rows_;  // of the batch, and with the replayed ones
  Matrix qkv_, out_;
  std::vector<float> decay_, beta_;
  std::vector<SequenceSpan> spans_;
  std::vector<ferry::HeldDeltaRows> held_;
  std::vector<Matrix> states_;
  std::vector<float*> pointers_;
};

/// The units of this processor, and its instruction sets.
std::vector<const OpTable*> all_tables() {
  std::vector<const OpTable*> tables = ferry::available_unit_tables();
  std::ranges::copy(ferry::available_op_tables(), std::back_inserter(tables));
  return tables;
}

void run_shape(Bench& bench, const Shape& shape) {
  Scene expected(shape);
  expected.run(bench.stream(), ferry::select_op_table("ref"));
  for (const OpTable* table : all_tables()) {
    if (std::strcmp(table->name, "ref") == 0 || !bench.wants(table->name) || !expected.is_taken_by(*table)) continue;
    const double tolerance = expected.is_chunk() && is_unit(*table) ? kUnitTolerance : kTolerance;
    const std::string name = std::string(shape.name) + " " + table->name;
    Scene scene(shape);
    scene.run(bench.stream(), *table);
    ferry::bench::require_close(expected.out().view(), scene.out().view(), tolerance, name);
    for (std::size_t s = 0; s < scene.states().size(); ++s) {
      ferry::bench::require_close(expected.states()[s].view(), scene.states()[s].view(), tolerance,
                                  name + ", state " + std::to_string(s));
    }
    bench.measure(name, scene.work(*table), [&](int64_t) { scene.run(bench.stream(), *table); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return ferry::bench::run_program(argc, argv, "the gated delta rule of DeltaNet", [](Bench& bench) {
    for (const Shape& shape : bench.settings().is_quick ? kQuickShapes : kShapes) run_shape(bench, shape);
  });
}
