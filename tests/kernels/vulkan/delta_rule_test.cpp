#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/matrices.h"
#include "tests/support/op_test.h"

// Heads of 128 by 128: the only ones that the chunk form of the device takes as chunks. Others it takes row by row.

namespace ferry::test {
namespace {

constexpr int64_t kKHeads = 1, kVHeads = 2, kDim = 128;
constexpr int64_t kQkvWidth = (2 * kKHeads + kVHeads) * kDim, kOutWidth = kVHeads * kDim;
constexpr DeltaForm kRecurrent = DeltaForm::kRecurrent;
constexpr Tolerance kStateTolerance{1e-5, 1e-5};

// The chunk form sums in another order than the recurrence; outputs and states are of order one.
Tolerance out_tolerance(DType dtype) { return dtype == DType::kF32 ? Tolerance{1e-5, 1e-5} : Tolerance{2e-5, 0.0079, 0.02}; }

using States = std::vector<std::vector<float>>;

/// Rows, their gates, and the states of sequences before the rows.
struct Problem {
  Problem(DType dtype, int64_t num_rows, std::size_t num_sequences)
      : qkv(TestMatrix(dtype, num_rows, kQkvWidth, 3).fill_random(1)) {
    const auto num_gates = static_cast<std::size_t>(num_rows * kVHeads);
    decay = random_floats(num_gates, 2);
    beta = random_floats(num_gates, 3);
    for (float& g : decay) g = -std::abs(g) * 0.3f;
    for (float& b : beta) b = 1.0f / (1.0f + std::exp(-b));
    for (std::size_t s = 0; s < num_sequences; ++s) {
      states.push_back(random_floats(static_cast<std::size_t>(kVHeads * kDim * kDim), 4 + static_cast<uint32_t>(s), 0.3f));
    }
  }
  TestMatrix result() const { return TestMatrix(qkv.view().dtype, qkv.view().rows, kOutWidth, 2).fill(0.0f); }

  /// Replayed rows are those before a span's own.
  void run(const OpTable& ops, int64_t chunk, std::span<const SequenceSpan> sequences, States& changed, MatrixView out) const {
    std::vector<float*> pointers;
    for (std::vector<float>& state : changed) pointers.push_back(state.data());
    std::vector<HeldDeltaRows> held;
    std::vector<std::vector<std::byte>> held_qkv;
    for (const SequenceSpan& span : sequences) {
      std::vector<std::byte>& rows = held_qkv.emplace_back();
      const int64_t first = span.first_row - span.num_replayed;
      for (int64_t r = first; r < span.first_row; ++r) {
        const std::byte* const row = qkv.view().row_bytes(r);
        rows.insert(rows.end(), row, row + kQkvWidth * dtype_bytes(qkv.view().dtype));
      }
      held.push_back({.qkv = rows.data(), .decay = decay.data() + first * kVHeads, .beta = beta.data() + first * kVHeads});
    }
    TestStream stream(1);
    ops.gated_delta_rule(stream, {.qkv = qkv.view(),
                                  .decay = decay.data(),
                                  .beta = beta.data(),
                                  .num_k_heads = kKHeads,
                                  .num_v_heads = kVHeads,
                                  .k_dim = kDim,
                                  .v_dim = kDim,
                                  .chunk = chunk,
                                  .sequences = sequences,
                                  .states = pointers,
                                  .held = held,
                                  .out = out});
  }

  TestMatrix qkv;
  std::vector<float> decay, beta;
  States states;
};

class VulkanDeltaRule : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (vulkan_table() == nullptr) GTEST_SKIP() << "no Vulkan device";
  }
};
INSTANTIATE_TEST_SUITE_P(DTypes, VulkanDeltaRule, testing::ValuesIn(kBothDTypes),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });

TEST_P(VulkanDeltaRule, ExtremeGatesLikeRef) {
  const std::vector<SequenceSpan> sequences = {{0, 70, 0}, {70, 1, 0, kRecurrent}};
  for (const float decay : {0.0f, -1e-4f, -50.0f, -1e4f}) {
    for (const float beta : {0.0f, 1.0f}) {
      Problem problem(GetParam(), 71, sequences.size());
      for (std::size_t i = 0; i < problem.decay.size(); i += 2) problem.decay[i] = decay;
      for (std::size_t i = 0; i < problem.beta.size(); i += 3) problem.beta[i] = beta;
      TestMatrix actual = problem.result(), expected = actual;
      States actual_states = problem.states, expected_states = problem.states;
      problem.run(*vulkan_table(), 64, sequences, actual_states, actual.view());
      problem.run(ref::kOpTable, 64, sequences, expected_states, expected.view());
      EXPECT_TRUE(all_close(actual.view(), expected.view(), out_tolerance(GetParam()))) << decay << ", " << beta;
      EXPECT_TRUE(actual.padding_intact());
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        EXPECT_TRUE(all_close(actual_states[s], expected_states[s], kStateTolerance)) << decay << ", " << beta;
      }
    }
  }
}

// With beta 0 nothing is written, with decay 0 nothing is forgotten.
TEST_P(VulkanDeltaRule, ClosedGatesKeepTheState) {
  const std::vector<SequenceSpan> sequences = {{0, 9, 0}, {9, 1, 0, kRecurrent}};
  Problem problem(GetParam(), 10, sequences.size());
  std::ranges::fill(problem.decay, 0.0f);
  std::ranges::fill(problem.beta, 0.0f);
  TestMatrix out = problem.result();
  States states = problem.states;
  problem.run(*vulkan_table(), 4, sequences, states, out.view());
  EXPECT_TRUE(states == problem.states);
}

// Chunks are counted from the first row of the step: cuts at multiples of the chunk change no bit, other cuts rounding only.
TEST_P(VulkanDeltaRule, ContinuesFromItsState) {
  const int64_t length = 80, chunk = 16;
  const Problem problem(GetParam(), length, 1);
  TestMatrix whole = problem.result();
  States whole_states = problem.states;
  const SequenceSpan all{0, length, 0};
  problem.run(*vulkan_table(), chunk, {&all, 1}, whole_states, whole.view());
  for (const auto& [cuts, is_at_chunks] :
       {std::pair<std::vector<int64_t>, bool>{{32, 48}, true}, {{16, 16, 48}, true}, {{7, 1, 1, 71}, false}}) {
    TestMatrix out = problem.result();
    States states = problem.states;
    int64_t first = 0;
    for (const int64_t count : cuts) {
      const SequenceSpan span{first, count, first};
      problem.run(*vulkan_table(), chunk, {&span, 1}, states, out.view());
      first += count;
    }
    EXPECT_TRUE(all_close(out.view(), whole.view(), is_at_chunks ? kExact : out_tolerance(GetParam())));
    EXPECT_TRUE(all_close(states[0], whole_states[0], is_at_chunks ? kExact : kStateTolerance));
  }
}

// A sequence gives the same bits alone and among others, whose forms differ.
TEST_P(VulkanDeltaRule, SequencesDoNotMix) {
  const std::vector<SequenceSpan> sequences = {{0, 37, 0}, {37, 1, 4, kRecurrent}, {38, 1, 9}, {39, 20, 0}};
  const Problem problem(GetParam(), 59, sequences.size());
  TestMatrix together = problem.result(), alone = problem.result();
  States together_states = problem.states;
  problem.run(*vulkan_table(), 16, sequences, together_states, together.view());
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    States state{problem.states[s]};
    problem.run(*vulkan_table(), 16, {&sequences[s], 1}, state, alone.view());
    EXPECT_TRUE(state[0] == together_states[s]) << "sequence " << s;
  }
  EXPECT_TRUE(all_close(together.view(), alone.view(), kExact));
}

// Rows that are held back leave the state as it was before them, and those that are replayed give it the bits that it would
// have had with them at once. What the rows themselves give out is the same in every way of cutting.
TEST_P(VulkanDeltaRule, HeldRowsWaitForTheirReplay) {
  const int64_t length = 9;
  const Problem problem(GetParam(), length, 1);
  TestMatrix plain = problem.result(), out = problem.result();
  States plain_states = problem.states, states = problem.states, after_first;
  for (int64_t t = 0; t < length; ++t) {
    const SequenceSpan one{t, 1, t, kRecurrent};
    problem.run(*vulkan_table(), 64, {&one, 1}, plain_states, plain.view());
    if (t == 0) after_first = plain_states;
  }
  // One row is taken and four are held, of which two turn out right; then one and three, all right; then the rest.
  const SequenceSpan first{0, 5, 0, kRecurrent, 0, 4};
  problem.run(*vulkan_table(), 64, {&first, 1}, states, out.view());
  EXPECT_TRUE(states == after_first);
  for (const SequenceSpan& span : {SequenceSpan{3, 4, 3, kRecurrent, 2, 3}, {7, 2, 7, kRecurrent, 3, 0}}) {
    problem.run(*vulkan_table(), 64, {&span, 1}, states, out.view());
  }
  EXPECT_TRUE(all_close(out.view(), plain.view(), kExact));
  EXPECT_TRUE(states == plain_states);
}

}  // namespace
}  // namespace ferry::test
