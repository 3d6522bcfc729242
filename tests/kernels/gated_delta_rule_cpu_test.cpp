#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draws.h"

namespace ferry {
namespace {

struct Heads {
  int64_t num_k_heads, num_v_heads, k_dim, v_dim;
  std::string text() const {
    return std::to_string(num_k_heads) + "/" + std::to_string(num_v_heads) + " heads of " + std::to_string(k_dim) + " x " +
           std::to_string(v_dim);
  }
};

constexpr Heads kHeads[] = {{2, 4, 16, 16}, {1, 3, 24, 40}, {2, 2, 128, 128}, {1, 2, 7, 5}, {1, 4, 33, 144}, {2, 6, 64, 32}};

struct Result {
  Matrix out;
  std::vector<Matrix> states;  // per sequence [num_v_heads * k_dim, v_dim]
};

/// Inputs of a call; rows that belong to no sequence are read by none.
struct Scene {
  Scene(DType dtype, Heads heads_in, std::vector<SequenceSpan> sequences_in)
      : heads(heads_in), sequences(std::move(sequences_in)) {
    int64_t num_rows = 0;
    for (const SequenceSpan& s : sequences) num_rows = std::max(num_rows, s.first_row + s.num_tokens);
    qkv = random_matrix(dtype, num_rows, 2 * heads.num_k_heads * heads.k_dim + heads.num_v_heads * heads.v_dim, 21);
    std::mt19937 generator(22);
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    for (int64_t i = 0; i < num_rows * heads.num_v_heads; ++i) {
      const float u = uniform(generator);
      decay.push_back(-2.0f * u * u * u);
      beta.push_back(uniform(generator));
    }
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      states.push_back(
          random_matrix(DType::kF32, heads.num_v_heads * heads.k_dim, heads.v_dim, static_cast<uint32_t>(30 + s), 0.3f));
    }
  }

  /// Runs the sequences `chosen`; the others keep their states.
  Result run(const OpTable& table, int64_t chunk, int num_threads, const std::vector<std::size_t>& chosen) const {
    Result result{Matrix(qkv.dtype(), qkv.rows(), heads.num_v_heads * heads.v_dim), {}};
    for (const Matrix& state : states) {
      Matrix copy(DType::kF32, state.rows(), state.cols());
      std::memcpy(copy.view().data, state.view().data, static_cast<std::size_t>(state.rows() * state.cols() * 4));
      result.states.push_back(std::move(copy));
    }
    std::vector<SequenceSpan> spans;
    std::vector<float*> pointers;
    for (const std::size_t s : chosen) {
      spans.push_back(sequences[s]);
      pointers.push_back(result.states[s].view().row<float>(0));
    }
    call(table, chunk, num_threads, spans, pointers, result.out.view());
    return result;
  }
  Result run(const OpTable& table, int64_t chunk, int num_threads) const {
    std::vector<std::size_t> all(sequences.size());
    for (std::size_t s = 0; s < all.size(); ++s) all[s] = s;
    return run(table, chunk, num_threads, all);
  }

  bool is_taken_by(const OpTable& table) const {
    return table.gated_delta_rule.takes({.qkv = qkv.view(),
                                         .num_k_heads = heads.num_k_heads,
                                         .num_v_heads = heads.num_v_heads,
                                         .k_dim = heads.k_dim,
                                         .v_dim = heads.v_dim});
  }
  void call(const OpTable& table, int64_t chunk, int num_threads, const std::vector<SequenceSpan>& spans,
            const std::vector<float*>& pointers, MatrixView out) const {
    test::TestStream stream(num_threads);
    table.gated_delta_rule(stream, {.qkv = qkv.view(),
                                    .decay = decay.data(),
                                    .beta = beta.data(),
                                    .num_k_heads = heads.num_k_heads,
                                    .num_v_heads = heads.num_v_heads,
                                    .k_dim = heads.k_dim,
                                    .v_dim = heads.v_dim,
                                    .chunk = chunk,
                                    .sequences = spans,
                                    .states = pointers,
                                    .out = out});
  }

  Heads heads;
  std::vector<SequenceSpan> sequences;
  Matrix qkv;
  std::vector<float> decay, beta;
  std::vector<Matrix> states;
};

void expect_same_result(const Result& expected, const Result& actual, const std::string& what) {
  expect_same_bits(expected.out.view(), actual.out.view(), what);
  for (std::size_t s = 0; s < expected.states.size(); ++s) {
    expect_same_bits(expected.states[s].view(), actual.states[s].view(), what + " state " + std::to_string(s));
  }
}

const std::vector<SequenceSpan> kMixed = {
    {2, 1, 0, DeltaForm::kRecurrent},   {3, 2, 9}, {5, 63, 0}, {70, 64, 1}, {134, 65, 0}, {200, 130, 7},
    {330, 1, 70, DeltaForm::kRecurrent}};

/// The vector tables, and the units that take the scene's rows.
std::vector<const OpTable*> tables_for(const Scene& scene) {
  std::vector<const OpTable*> tables = vector_op_tables();
  for (const OpTable* unit : available_unit_tables()) {
    if (scene.is_taken_by(*unit)) tables.push_back(unit);
  }
  return tables;
}

/// How far results may be from the recurrence's, of the largest one. Units round states and corrections to 8 bits, each of
/// which is then off by up to 2^-9 of itself.
float tolerance_of(const OpTable& table, float fp32) {
  const bool is_unit = !table.embed.takes({});
  return is_unit ? 4e-3f : fp32;
}

TEST(CpuGatedDeltaRule, EveryChunkEqualsTheRecurrence) {
  using Chunks = std::vector<int64_t>;
  for (const DType dtype : kBothDTypes) {
    for (const Heads heads : kHeads) {
      const Scene scene(dtype, heads, kMixed);
      const Result expected = scene.run(ref::kOpTable, 1, 1);
      for (const OpTable* table : tables_for(scene)) {
        for (const int64_t chunk : test::draws(Chunks{1, 7, 16, 64}, Chunks{7, 64})) {
          const std::string what =
              std::string(table->name) + " " + dtype_name(dtype) + " " + heads.text() + " chunk " + std::to_string(chunk);
          const Result result = scene.run(*table, chunk, 2);
          expect_close(expected.out.view(), result.out.view(), tolerance_of(*table, 1e-5f), what);
          for (std::size_t s = 0; s < kMixed.size(); ++s) {
            expect_close(expected.states[s].view(), result.states[s].view(), tolerance_of(*table, 1e-5f),
                         what + " state " + std::to_string(s));
          }
        }
      }
    }
  }
}

/// The part of `actual` that is `expected` times a factor: the factor.
double scale_of(ConstMatrixView expected, ConstMatrixView actual) {
  double product = 0, square = 0;
  for (int64_t r = 0; r < expected.rows; ++r) {
    for (int64_t c = 0; c < expected.cols; ++c) {
      product += static_cast<double>(element(expected, r, c)) * element(actual, r, c);
      square += static_cast<double>(element(expected, r, c)) * element(expected, r, c);
    }
  }
  return product / square;
}

// Rounding to nearest errs to both sides alike; cutting bits off would make everything smaller by about 2^-9.
TEST(CpuGatedDeltaRule, ChunksAreNeitherTooLargeNorTooSmall) {
  const Scene scene(DType::kBF16, {1, 2, 128, 128}, {{0, 256, 0}});
  const Result expected = scene.run(ref::kOpTable, 1, 1);
  for (const OpTable* table : tables_for(scene)) {
    const Result result = scene.run(*table, 64, 2);
    EXPECT_NEAR(scale_of(expected.out.view(), result.out.view()), 1.0, 2e-4) << table->name;
    EXPECT_NEAR(scale_of(expected.states[0].view(), result.states[0].view()), 1.0, 2e-4) << table->name;
  }
}

TEST(CpuGatedDeltaRule, SequencesDoNotDependOnEachOtherOrThreads) {
  for (const DType dtype : kBothDTypes) {
    for (const Heads heads : kHeads) {
      const Scene scene(dtype, heads, kMixed);
      for (const OpTable* table : tables_for(scene)) {
        const std::string what = std::string(table->name) + " " + heads.text();
        const Result whole = scene.run(*table, 16, 1);
        for (const int num_threads : {2, 5}) expect_same_result(whole, scene.run(*table, 16, num_threads), what + " threads");
        for (std::size_t s = 0; s < kMixed.size(); ++s) {
          const Result alone = scene.run(*table, 16, 1, {s});
          const SequenceSpan span = kMixed[s];
          expect_same_bits(whole.out.view().rows_from(span.first_row, span.num_tokens),
                           alone.out.view().rows_from(span.first_row, span.num_tokens), what + " alone");
          expect_same_bits(whole.states[s].view(), alone.states[s].view(), what + " state alone");
        }
      }
    }
  }
}

// Many columns: of what differs in fp32's last place, one in 65536 is seen in bf16.
TEST(CpuGatedDeltaRule, RowsDoNotDependOnThoseBehindThem) {
  for (const DType dtype : kBothDTypes) {
    const Scene scene(dtype, {4, 16, 64, 128}, {{0, 64, 0}});
    for (const OpTable* table : tables_for(scene)) {
      const Result whole = scene.run(*table, 64, 1);
      for (const int64_t count : {1, 8, 15, 33, 50}) {
        Result part = scene.run(*table, 64, 1, {});
        scene.call(*table, 64, 1, {{0, count, 0}}, {part.states[0].view().row<float>(0)}, part.out.view());
        expect_same_bits(whole.out.view().rows_from(0, count), part.out.view().rows_from(0, count),
                         std::string(table->name) + " " + std::to_string(count));
      }
    }
  }
}

// Working memory is what the last call left behind.
TEST(CpuGatedDeltaRule, ResultsDoNotDependOnEarlierCalls) {
  for (const DType dtype : kBothDTypes) {
    const Heads heads{1, 2, 64, 32};
    const Scene scene(dtype, heads, {{0, 5, 0}, {5, 39, 0}, {44, 1, 0, DeltaForm::kRecurrent}});
    Scene broken(dtype, heads, {{0, 64, 0}});
    fill(broken.qkv.view(), std::numeric_limits<float>::quiet_NaN());
    for (const OpTable* table : tables_for(scene)) {
      const Result before = scene.run(*table, 64, 1);
      broken.run(*table, 64, 1);
      expect_same_result(before, scene.run(*table, 64, 1), table->name);
    }
  }
}

TEST(CpuGatedDeltaRule, ContinuingAtAPieceBoundaryGivesTheSameBits) {
  for (const DType dtype : kBothDTypes) {
    for (const Heads heads : {Heads{1, 3, 24, 40}, Heads{1, 2, 64, 32}}) {
      const Scene scene(dtype, heads, {{0, 100, 0}});
      for (const OpTable* table : tables_for(scene)) {
        const Result whole = scene.run(*table, 16, 1);
        Result parts = scene.run(*table, 16, 1, {});
        float* state = parts.states[0].view().row<float>(0);
        scene.call(*table, 16, 1, {{0, 48, 0}}, {state}, parts.out.view());
        scene.call(*table, 16, 1, {{48, 52, 48}}, {state}, parts.out.view());
        expect_same_result(whole, parts, std::string(table->name) + " " + heads.text());
      }
    }
  }
}

TEST(CpuGatedDeltaRule, InstructionSetsGiveEqualBits) {
  const std::vector<const OpTable*> tables = vector_op_tables();
  for (const DType dtype : kBothDTypes) {
    for (const Heads heads : kHeads) {
      const Scene scene(dtype, heads, kMixed);
      for (std::size_t i = 1; i < tables.size(); ++i) {
        expect_same_result(scene.run(*tables[0], 64, 1), scene.run(*tables[i], 64, 1), dtype_name(dtype) + heads.text());
      }
    }
  }
}

TEST(CpuGatedDeltaRule, UnitsTakeSingleRowsAsTheirInstructionSetDoes) {
  const Scene scene(DType::kBF16, {2, 6, 64, 32}, {{0, 1, 5, DeltaForm::kRecurrent}, {1, 4, 2, DeltaForm::kRecurrent}});
  const OpTable& best = select_op_table("auto");
  for (const OpTable* unit : available_unit_tables()) {
    if (scene.is_taken_by(*unit)) expect_same_result(scene.run(best, 64, 1), scene.run(*unit, 64, 2), unit->name);
  }
}

TEST(CpuGatedDeltaRule, ExtremeGatesStayFiniteAndRight) {
  for (const float beta : {0.0f, 1.0f}) {
    for (const float decay : {-50.0f, 0.0f, -1000.0f}) {
      for (const DType dtype : kBothDTypes) {
        Scene scene(dtype, {1, 2, 32, 32}, {{0, 70, 0}, {70, 1, 0, DeltaForm::kRecurrent}});
        for (std::size_t i = 0; i < scene.decay.size(); ++i) {
          scene.decay[i] = i % 3 == 0 ? 0.0f : decay;
          scene.beta[i] = i % 5 == 0 ? 1.0f - beta : beta;
        }
        const Result expected = scene.run(ref::kOpTable, 1, 1);
        for (const OpTable* table : tables_for(scene)) {
          for (const int64_t chunk : {16, 64}) {
            const std::string what =
                std::string(table->name) + " decay " + std::to_string(decay) + " beta " + std::to_string(beta);
            const Result result = scene.run(*table, chunk, 1);
            expect_close(expected.out.view(), result.out.view(), tolerance_of(*table, 2e-5f), what);
            for (std::size_t s = 0; s < 2; ++s)
              expect_close(expected.states[s].view(), result.states[s].view(), tolerance_of(*table, 2e-5f), what + " state");
          }
        }
      }
    }
  }
}

TEST(CpuGatedDeltaRule, ZeroKeysStayFinite) {
  Scene scene(DType::kBF16, {1, 2, 32, 32}, {{0, 20, 0}, {20, 1, 0, DeltaForm::kRecurrent}});
  fill(scene.qkv.view(), 0.0f);
  const Result expected = scene.run(ref::kOpTable, 1, 1);
  for (const OpTable* table : tables_for(scene)) {
    expect_close(expected.out.view(), scene.run(*table, 64, 1).out.view(), tolerance_of(*table, 1e-5f), table->name);
  }
}

}  // namespace
}  // namespace ferry
