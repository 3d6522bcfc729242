#include <gtest/gtest.h>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

struct Shape {
  int64_t num_k_heads, num_v_heads, k_dim, v_dim;
  int64_t qkv_width() const { return 2 * num_k_heads * k_dim + num_v_heads * v_dim; }
  int64_t out_width() const { return num_v_heads * v_dim; }
  std::size_t state_size() const { return static_cast<std::size_t>(num_v_heads * k_dim * v_dim); }
};

// The chunk form sums in another order than the recurrence; outputs and states are of order one.
Tolerance out_tolerance(DType dtype) { return dtype == DType::kF32 ? Tolerance{1e-5, 1e-5} : Tolerance{2e-5, 0.0079, 0.02}; }
constexpr Tolerance kStateTolerance{1e-5, 1e-5};
constexpr DeltaForm kRecurrent = DeltaForm::kRecurrent;

/// Inputs of one call and the states that it changes.
struct Problem {
  Problem(DType dtype, const Shape& dims, int64_t num_tokens, std::size_t num_sequences, uint32_t seed)
      : shape(dims), qkv(TestMatrix(dtype, num_tokens, dims.qkv_width(), 3).fill_random(seed)) {
    const auto num_gates = static_cast<std::size_t>(num_tokens * dims.num_v_heads);
    decay = random_floats(num_gates, seed + 1);
    beta = random_floats(num_gates, seed + 2);
    for (float& g : decay) g = -std::abs(g) * 0.3f;
    for (float& b : beta) b = 1.0f / (1.0f + std::exp(-b));
    for (std::size_t s = 0; s < num_sequences; ++s) {
      states.push_back(random_floats(dims.state_size(), seed + 3 + static_cast<uint32_t>(s), 0.3f));
    }
  }
  GatedDeltaRuleArgs args(int64_t chunk, std::span<const SequenceSpan> sequences, std::span<float* const> state_pointers,
                          MatrixView out) const {
    return {.qkv = qkv.view(),
            .decay = decay.data(),
            .beta = beta.data(),
            .num_k_heads = shape.num_k_heads,
            .num_v_heads = shape.num_v_heads,
            .k_dim = shape.k_dim,
            .v_dim = shape.v_dim,
            .chunk = chunk,
            .sequences = sequences,
            .states = state_pointers,
            .out = out};
  }

  Shape shape;
  TestMatrix qkv;
  std::vector<float> decay, beta;
  std::vector<std::vector<float>> states;
};

class GatedDeltaRuleTest : public OpTest {
 protected:
  void run(const OpTable& ops, Stream& stream, const Problem& problem, int64_t chunk, std::span<const SequenceSpan> sequences,
           std::vector<std::vector<float>>& states, MatrixView out) {
    std::vector<float*> pointers;
    for (std::vector<float>& state : states) pointers.push_back(state.data());
    GatedDeltaRuleArgs args = problem.args(chunk, sequences, pointers, out);
    std::vector<HeldDeltaRows> held;
    std::vector<std::vector<std::byte>> held_qkv;  // replayed rows are those before the span's own
    for (const SequenceSpan& span : sequences) {
      std::vector<std::byte>& rows = held_qkv.emplace_back();
      const int64_t first = span.first_row - span.num_replayed;
      for (int64_t r = first; r < span.first_row; ++r) {
        const std::byte* row = problem.qkv.view().row_bytes(r);
        rows.insert(rows.end(), row, row + problem.shape.qkv_width() * dtype_bytes(dtype()));
      }
      held.push_back({.qkv = rows.data(),
                      .decay = args.decay + first * problem.shape.num_v_heads,
                      .beta = args.beta + first * problem.shape.num_v_heads});
    }
    args.held = held;
    ops.gated_delta_rule(stream, args);
  }
  void expect_like_ref(const Problem& problem, int64_t chunk, std::span<const SequenceSpan> sequences) {
    const int64_t rows = problem.qkv.view().rows;
    TestMatrix actual = TestMatrix(dtype(), rows, problem.shape.out_width(), 2).fill(0.0f), serial = actual, expected = actual;
    std::vector<std::vector<float>> states = problem.states, serial_states = problem.states, expected_states = problem.states;
    run(table(), stream_, problem, chunk, sequences, states, actual.view());
    run(table(), serial_stream_, problem, chunk, sequences, serial_states, serial.view());
    run(ref::kOpTable, serial_stream_, problem, chunk, sequences, expected_states, expected.view());
    EXPECT_TRUE(all_close(actual.view(), expected.view(), out_tolerance(dtype()))) << "chunk " << chunk;
    EXPECT_TRUE(all_close(actual.view(), serial.view(), kExact)) << "chunk " << chunk;
    EXPECT_TRUE(actual.padding_intact());
    for (std::size_t s = 0; s < states.size(); ++s) {
      EXPECT_TRUE(all_close(states[s], expected_states[s], kStateTolerance)) << "chunk " << chunk << " sequence " << s;
      EXPECT_EQ(states[s], serial_states[s]);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, GatedDeltaRuleTest, testing::ValuesIn(op_cases()), op_case_name);

TEST_P(GatedDeltaRuleTest, LikeRef) {
  // Lengths below, at and above the chunk; not in the order of the rows.
  const std::vector<SequenceSpan> sequences = {{1, 7, 0},   {0, 1, 5, kRecurrent},   {8, 64, 3},
                                               {72, 67, 0}, {139, 2, 1, kRecurrent}, {141, 1, 0}};
  for (const Shape& shape : {Shape{1, 1, 1, 1}, {2, 4, 16, 16}, {1, 3, 19, 21}, {2, 2, 64, 40}, {1, 2, 128, 128}}) {
    const Problem problem(dtype(), shape, 142, sequences.size(), 1);
    for (const int64_t chunk : {1, 5, 64}) expect_like_ref(problem, chunk, sequences);
  }
}

TEST_P(GatedDeltaRuleTest, LikeRefAtExtremeGates) {
  const std::vector<SequenceSpan> sequences = {{0, 70, 0}, {70, 1, 0, kRecurrent}};
  for (const float decay : {0.0f, -1e-4f, -50.0f, -1e4f}) {
    for (const float beta : {0.0f, 1.0f}) {
      Problem problem(dtype(), {2, 4, 24, 17}, 71, sequences.size(), 20);
      for (std::size_t i = 0; i < problem.decay.size(); i += 2) problem.decay[i] = decay;
      for (std::size_t i = 0; i < problem.beta.size(); i += 3) problem.beta[i] = beta;
      expect_like_ref(problem, 64, sequences);
    }
  }
}

// S_t = e^decay (I - beta k k^T) S_{t-1} + beta k v^T, o_t = S_t^T q: the recurrence with the update multiplied out, in double.
TEST_P(GatedDeltaRuleTest, IsTheFormula) {
  const Shape shape{2, 4, 12, 9};
  const int64_t length = 11;
  const Problem problem(dtype(), shape, length, 1, 30);
  TestMatrix out(dtype(), length, shape.out_width());
  std::vector<std::vector<float>> states = problem.states;
  const SequenceSpan all{0, length, 0};
  run(table(), stream_, problem, 4, {&all, 1}, states, out.view());

  const auto k_size = static_cast<std::size_t>(shape.k_dim), v_size = static_cast<std::size_t>(shape.v_dim);
  for (int64_t head = 0; head < shape.num_v_heads; ++head) {
    const auto first = problem.states[0].begin() + head * shape.k_dim * shape.v_dim;
    std::vector<double> state(first, first + shape.k_dim * shape.v_dim);
    for (int64_t t = 0; t < length; ++t) {
      const auto normalised = [&](int64_t first_col, double scale) {
        double sum = 1e-6;
        for (int64_t i = 0; i < shape.k_dim; ++i) sum += std::pow(problem.qkv.get(t, first_col + i), 2.0);
        std::vector<double> x;
        for (int64_t i = 0; i < shape.k_dim; ++i) x.push_back(problem.qkv.get(t, first_col + i) / std::sqrt(sum) * scale);
        return x;
      };
      const int64_t key_head_col = head / 2 * shape.k_dim;
      const std::vector<double> q = normalised(key_head_col, 1.0 / std::sqrt(12.0));
      const std::vector<double> k = normalised(shape.num_k_heads * shape.k_dim + key_head_col, 1.0);
      const auto gate_idx = static_cast<std::size_t>(t * shape.num_v_heads + head);
      const double keep = std::exp(static_cast<double>(problem.decay[gate_idx])), beta = problem.beta[gate_idx];
      std::vector<double> next(k_size * v_size, 0.0);
      for (std::size_t i = 0; i < k_size; ++i) {
        for (std::size_t l = 0; l < k_size; ++l) {
          const double transition = (i == l ? 1.0 : 0.0) - beta * k[i] * k[l];
          for (std::size_t j = 0; j < v_size; ++j) next[i * v_size + j] += keep * transition * state[l * v_size + j];
        }
        for (std::size_t j = 0; j < v_size; ++j) {
          const int64_t col = 2 * shape.num_k_heads * shape.k_dim + head * shape.v_dim + static_cast<int64_t>(j);
          next[i * v_size + j] += beta * k[i] * problem.qkv.get(t, col);
        }
      }
      state = next;
      for (std::size_t j = 0; j < v_size; ++j) {
        double expected = 0.0;
        for (std::size_t i = 0; i < k_size; ++i) expected += state[i * v_size + j] * q[i];
        EXPECT_NEAR(out.get(t, head * shape.v_dim + static_cast<int64_t>(j)), expected,
                    is_f32() ? 3e-6 : std::abs(expected) * 0.00393 + 1e-5);
      }
    }
    for (std::size_t i = 0; i < state.size(); ++i) {
      EXPECT_NEAR(states[0][static_cast<std::size_t>(head) * state.size() + i], state[i], 5e-6);
    }
  }
}

// With beta 0 nothing is written, with decay 0 nothing is forgotten.
TEST_P(GatedDeltaRuleTest, ClosedGatesKeepTheState) {
  const std::vector<SequenceSpan> sequences = {{0, 9, 0}, {9, 1, 0, kRecurrent}};
  Problem problem(dtype(), {1, 2, 16, 11}, 10, sequences.size(), 40);
  std::fill(problem.decay.begin(), problem.decay.end(), 0.0f);
  std::fill(problem.beta.begin(), problem.beta.end(), 0.0f);
  TestMatrix out(dtype(), 10, problem.shape.out_width());
  std::vector<std::vector<float>> states = problem.states;
  run(table(), stream_, problem, 4, sequences, states, out.view());
  EXPECT_EQ(states, problem.states);
}

// Chunks are counted from the first row of the step: cuts at multiples of the chunk change no bit, other cuts rounding only.
TEST_P(GatedDeltaRuleTest, ContinuesFromItsState) {
  const int64_t length = 80, chunk = 16;
  const Problem problem(dtype(), {2, 4, 32, 24}, length, 1, 50);
  TestMatrix whole(dtype(), length, problem.shape.out_width());
  std::vector<std::vector<float>> whole_states = problem.states;
  const SequenceSpan all{0, length, 0};
  run(table(), stream_, problem, chunk, {&all, 1}, whole_states, whole.view());
  for (const auto& [cuts, tolerance] : {std::pair<std::vector<int64_t>, Tolerance>{{32, 48}, kExact},
                                        {{16, 16, 48}, kExact},
                                        {{7, 1, 1, 71}, out_tolerance(dtype())}}) {
    TestMatrix out(dtype(), length, problem.shape.out_width());
    std::vector<std::vector<float>> states = problem.states;
    int64_t first = 0;
    for (const int64_t count : cuts) {
      const SequenceSpan span{first, count, first};
      run(table(), stream_, problem, chunk, {&span, 1}, states, out.view());
      first += count;
    }
    EXPECT_TRUE(all_close(out.view(), whole.view(), tolerance));
    EXPECT_TRUE(all_close(states[0], whole_states[0], kStateTolerance));
  }
}

// A sequence gives the same bits alone and among others.
TEST_P(GatedDeltaRuleTest, SequencesDoNotMix) {
  const std::vector<SequenceSpan> sequences = {{0, 37, 0}, {37, 1, 4, kRecurrent}, {38, 1, 9}, {39, 20, 0}};
  const Problem problem(dtype(), {2, 6, 48, 33}, 59, sequences.size(), 60);
  TestMatrix together(dtype(), 59, problem.shape.out_width()), alone(dtype(), 59, problem.shape.out_width());
  std::vector<std::vector<float>> together_states = problem.states;
  run(table(), stream_, problem, 16, sequences, together_states, together.view());
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    std::vector<std::vector<float>> state{problem.states[s]};
    run(table(), stream_, problem, 16, {&sequences[s], 1}, state, alone.view());
    EXPECT_EQ(state[0], together_states[s]);
  }
  EXPECT_TRUE(all_close(together.view(), alone.view(), kExact));
}

// Rows that are held back leave the state as it was before them, and those that are replayed give it the bits that it would
// have had with them at once. What the rows themselves give out is the same in every way of cutting.
TEST_P(GatedDeltaRuleTest, HeldRowsWaitForTheirReplay) {
  for (const Shape& shape : {Shape{2, 4, 32, 32}, {1, 3, 19, 21}}) {
    const int64_t length = 9;
    const Problem problem(dtype(), shape, length, 1, 70);
    TestMatrix plain(dtype(), length, shape.out_width()), out(dtype(), length, shape.out_width());
    std::vector<std::vector<float>> plain_states = problem.states, states = problem.states, before_held;
    for (int64_t t = 0; t < length; ++t) {
      const SequenceSpan one{t, 1, t, kRecurrent};
      run(table(), stream_, problem, 64, {&one, 1}, plain_states, plain.view());
      if (t == 0) before_held = plain_states;
    }
    // One row is taken and four are held, of which two turn out right; then one and three, all right; then the rest.
    struct Cut {
      int64_t first, count, replayed, held;
    };
    for (const Cut& cut : {Cut{0, 5, 0, 4}, {3, 4, 2, 3}, {7, 2, 3, 0}}) {
      const SequenceSpan span{cut.first, cut.count, cut.first, kRecurrent, cut.replayed, cut.held};
      run(table(), stream_, problem, 64, {&span, 1}, states, out.view());
      if (cut.first == 0) {
        EXPECT_EQ(states, before_held);
      }
    }
    EXPECT_TRUE(all_close(out.view(), plain.view(), kExact));
    EXPECT_EQ(states, plain_states);
  }
}

}  // namespace
}  // namespace ferry::test
