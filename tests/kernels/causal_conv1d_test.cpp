#include <gtest/gtest.h>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

// Multiply-adds against products and sums; in bf16 two roundings, of which each may fall to a neighbour. Sums near zero
// lose relative precision.
Tolerance tolerance_of(DType dtype) { return dtype == DType::kF32 ? Tolerance{2e-6, 2e-6} : Tolerance{1e-6, 0.0161, 0.01}; }

class CausalConv1dTest : public OpTest {
 protected:
  /// One call over the whole batch; `states` holds one [kernel - 1, channels] matrix a sequence.
  void run(const OpTable& ops, const TestMatrix& x, const std::vector<float>& weight, int64_t kernel,
           std::span<const SequenceSpan> sequences, std::vector<TestMatrix>& states, MatrixView out) {
    std::vector<std::byte*> pointers;
    for (TestMatrix& state : states) pointers.push_back(state.view().data);
    std::vector<const std::byte*> held;
    for (const SequenceSpan& span : sequences)  // replayed rows are those before the span's own; only a dense x has such
      held.push_back(span.num_replayed > 0 ? x.view().row_bytes(span.first_row - span.num_replayed) : nullptr);
    ops.causal_conv1d(stream_, {.x = x.view(),
                                .weight = weight.data(),
                                .kernel = kernel,
                                .sequences = sequences,
                                .states = pointers,
                                .held = held,
                                .out = out});
  }
  std::vector<TestMatrix> random_states(std::size_t count, int64_t kernel, int64_t channels) const {
    std::vector<TestMatrix> states;
    for (std::size_t s = 0; s < count; ++s) {
      states.push_back(TestMatrix(dtype(), kernel - 1, channels).fill_random(100 + static_cast<uint32_t>(s)));
    }
    return states;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, CausalConv1dTest, testing::ValuesIn(op_cases()), op_case_name);

TEST_P(CausalConv1dTest, LikeRef) {
  for (const int64_t kernel : {1, 2, 3, 4, 7, 33}) {
    for (const int64_t channels : {1, 16, 37, 300, 1031}) {
      // Lengths below, at and above kernel - 1; a gap of one unused row; not in the order of the rows.
      const std::vector<SequenceSpan> sequences = {{4, 5, 3}, {0, 1, 9}, {1, 2, 0}, {9, 12, 0}};
      const TestMatrix x = TestMatrix(dtype(), 21, channels, 5).fill_random(1);
      const std::vector<float> weight = random_floats(static_cast<std::size_t>(channels * kernel), 2);
      std::vector<TestMatrix> states = random_states(sequences.size(), kernel, channels);
      std::vector<TestMatrix> expected_states = states;
      TestMatrix actual = TestMatrix(dtype(), 21, channels, 3).fill(0.0f),
                 expected = TestMatrix(dtype(), 21, channels).fill(0.0f);
      run(table(), x, weight, kernel, sequences, states, actual.view());
      run(ref::kOpTable, x, weight, kernel, sequences, expected_states, expected.view());
      EXPECT_TRUE(all_close(actual.view(), expected.view(), tolerance_of(dtype())))
          << "kernel " << kernel << " channels " << channels;
      EXPECT_TRUE(actual.padding_intact());
      for (std::size_t s = 0; s < states.size(); ++s) {
        EXPECT_TRUE(all_close(states[s].view(), expected_states[s].view(), kExact)) << "kernel " << kernel << " sequence " << s;
      }
    }
  }
}

TEST_P(CausalConv1dTest, IsTheFormulaFromZeroHistory) {
  const int64_t kernel = 4, channels = 19, length = 9;
  const TestMatrix x = TestMatrix(dtype(), length, channels).fill_random(3);
  const std::vector<float> weight = random_floats(static_cast<std::size_t>(channels * kernel), 4);
  std::vector<TestMatrix> states{TestMatrix(dtype(), kernel - 1, channels).fill(0.0f)};
  TestMatrix out(dtype(), length, channels);
  const SequenceSpan all{0, length, 0};
  run(table(), x, weight, kernel, {&all, 1}, states, out.view());
  int num_unequal = 0;
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t ch = 0; ch < channels; ++ch) {
      double sum = 0.0;
      for (int64_t back = 0; back < kernel && back <= t; ++back) {  // the last weight belongs to the current token
        sum += static_cast<double>(weight[static_cast<std::size_t>(ch * kernel + kernel - 1 - back)]) * x.get(t - back, ch);
      }
      const double y = nearest(dtype(), sum);
      const double expected = nearest(dtype(), y / (1.0 + std::exp(-y)));
      num_unequal += std::abs(out.get(t, ch) - expected) > 2e-6;
    }
  }
  EXPECT_LE(num_unequal, is_f32() ? 0 : 1);  // a tie may fall the other way in double
  for (int64_t j = 0; j < kernel - 1; ++j) {
    for (int64_t ch = 0; ch < channels; ++ch) EXPECT_EQ(states[0].get(j, ch), x.get(length - kernel + 1 + j, ch));
  }
}

// However a sequence is cut into steps, outputs and the final state are the same bits.
TEST_P(CausalConv1dTest, CutsDoNotMatter) {
  const int64_t kernel = 4, channels = 270, length = 23;
  const TestMatrix x = TestMatrix(dtype(), length, channels).fill_random(5);
  const std::vector<float> weight = random_floats(static_cast<std::size_t>(channels * kernel), 6);
  std::vector<TestMatrix> whole_states = random_states(1, kernel, channels);
  const std::vector<TestMatrix> initial_states = whole_states;
  TestMatrix whole(dtype(), length, channels);
  const SequenceSpan all{0, length, 0};
  run(table(), x, weight, kernel, {&all, 1}, whole_states, whole.view());
  for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{1, 1, 1, 20}, {2, 1, 5, 15}, {3, 3, 17}, {22, 1}}) {
    std::vector<TestMatrix> states = initial_states;
    TestMatrix out(dtype(), length, channels);
    int64_t first = 0;
    for (const int64_t count : cuts) {
      const SequenceSpan span{first, count, first};
      run(table(), x, weight, kernel, {&span, 1}, states, out.view());
      first += count;
    }
    EXPECT_TRUE(all_close(out.view(), whole.view(), kExact));
    EXPECT_TRUE(all_close(states[0].view(), whole_states[0].view(), kExact));
  }
}

// Inputs that are held back stay out of the state, and those that are replayed are in it as if they had never been held.
TEST_P(CausalConv1dTest, HeldRowsWaitForTheirReplay) {
  for (const int64_t kernel : {1, 2, 4, 6}) {
    const int64_t channels = 270, length = 11;
    const TestMatrix x = TestMatrix(dtype(), length, channels).fill_random(15);
    const std::vector<float> weight = random_floats(static_cast<std::size_t>(channels * kernel), 16);
    std::vector<TestMatrix> whole_states = random_states(1, kernel, channels), states = whole_states;
    TestMatrix whole(dtype(), length, channels), out(dtype(), length, channels);
    const SequenceSpan all{0, length, 0};
    run(table(), x, weight, kernel, {&all, 1}, whole_states, whole.view());
    // Rows 1 to 4 are held and two of them replayed; then rows 4 to 8, and all of them; then none.
    const DeltaForm form = DeltaForm::kRecurrent;
    for (const SequenceSpan& span : {SequenceSpan{0, 5, 0, form, 0, 4}, {3, 6, 3, form, 2, 5}, {9, 2, 9, form, 5, 0}})
      run(table(), x, weight, kernel, {&span, 1}, states, out.view());
    EXPECT_TRUE(all_close(out.view(), whole.view(), kExact)) << kernel;
    EXPECT_TRUE(all_close(states[0].view(), whole_states[0].view(), kExact)) << kernel;
  }
}

// With more threads channels come in smaller blocks, and threads that are awake share out shorter calls.
TEST_P(CausalConv1dTest, ThreadsDoNotMatter) {
  for (const int64_t kernel : {4, 6}) {
    const int64_t channels = 2131;
    const std::vector<SequenceSpan> sequences = {{0, 1, 5}, {1, 7, 0}};
    const TestMatrix x = TestMatrix(dtype(), 8, channels).fill_random(9);
    const std::vector<float> weight = random_floats(static_cast<std::size_t>(channels * kernel), 10);
    const auto values = [&](int num_threads, std::chrono::microseconds spin) {
      TestStream stream(num_threads, spin);
      std::vector<TestMatrix> states = random_states(2, kernel, channels);
      std::vector<std::byte*> pointers{states[0].view().data, states[1].view().data};
      states.push_back(TestMatrix(dtype(), 8, channels));
      table().causal_conv1d(stream, {.x = x.view(),
                                     .weight = weight.data(),
                                     .kernel = kernel,
                                     .sequences = sequences,
                                     .states = pointers,
                                     .out = states.back().view()});
      return states;
    };
    const std::vector<TestMatrix> alone = values(1, {});
    for (const int num_threads : {2, 5, 40}) {
      for (const int spin_us : {0, 50}) {
        const std::vector<TestMatrix> shared = values(num_threads, std::chrono::microseconds(spin_us));
        for (std::size_t i = 0; i < alone.size(); ++i)
          EXPECT_TRUE(all_close(shared[i].view(), alone[i].view(), kExact))
              << kernel << ", " << num_threads << " threads, " << i;
      }
    }
  }
}

// A sequence gives the same bits alone and among others, long and short.
TEST_P(CausalConv1dTest, SequencesDoNotMix) {
  const int64_t kernel = 4, channels = 2131;
  const std::vector<SequenceSpan> sequences = {{0, 300, 0}, {300, 1, 7}, {301, 40, 0}};
  const TestMatrix x = TestMatrix(dtype(), 341, channels).fill_random(7);
  const std::vector<float> weight = random_floats(static_cast<std::size_t>(channels * kernel), 8);
  std::vector<TestMatrix> together_states = random_states(3, kernel, channels), alone_states = together_states;
  TestMatrix together(dtype(), 341, channels), alone(dtype(), 341, channels);
  run(table(), x, weight, kernel, sequences, together_states, together.view());
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    std::vector<TestMatrix> state{alone_states[s]};
    run(table(), x, weight, kernel, {&sequences[s], 1}, state, alone.view());
    EXPECT_TRUE(all_close(state[0].view(), together_states[s].view(), kExact));
  }
  EXPECT_TRUE(all_close(together.view(), alone.view(), kExact));
}

}  // namespace
}  // namespace ferry::test
