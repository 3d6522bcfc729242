#include "tests/support/multiply_bound.h"

#include <algorithm>
#include <chrono>

#include "kernels/roof_probe.h"

namespace ferry {
namespace {

// Twelve chains in registers 0 to 11, factors in 13 and 14. Sums and factors are zero; no unit is faster or slower for it.
#define FERRY_CLEAR_REGISTERS                                                                             \
  "vpxor %%xmm0, %%xmm0, %%xmm0\n vpxor %%xmm1, %%xmm1, %%xmm1\n vpxor %%xmm2, %%xmm2, %%xmm2\n"          \
  "vpxor %%xmm3, %%xmm3, %%xmm3\n vpxor %%xmm4, %%xmm4, %%xmm4\n vpxor %%xmm5, %%xmm5, %%xmm5\n"          \
  "vpxor %%xmm6, %%xmm6, %%xmm6\n vpxor %%xmm7, %%xmm7, %%xmm7\n vpxor %%xmm8, %%xmm8, %%xmm8\n"          \
  "vpxor %%xmm9, %%xmm9, %%xmm9\n vpxor %%xmm10, %%xmm10, %%xmm10\n vpxor %%xmm11, %%xmm11, %%xmm11\n"    \
  "vpxor %%xmm12, %%xmm12, %%xmm12\n vpxor %%xmm13, %%xmm13, %%xmm13\n vpxor %%xmm14, %%xmm14, %%xmm14\n" \
  "vpxor %%xmm15, %%xmm15, %%xmm15\n"
#define FERRY_VECTOR_REGISTERS                                                                                                 \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", \
      "xmm15"
#define FERRY_TWELVE(STEP) \
  STEP("0") STEP("1") STEP("2") STEP("3") STEP("4") STEP("5") STEP("6") STEP("7") STEP("8") STEP("9") STEP("10") STEP("11")
#define FERRY_LOOP(BODY)                                                               \
  asm volatile(FERRY_CLEAR_REGISTERS "1:\n" BODY BODY "dec %0\n jnz 1b\n vzeroupper\n" \
               : "+r"(rounds)                                                          \
               :                                                                       \
               : "cc", FERRY_VECTOR_REGISTERS)

constexpr double kVectorStepsInRound = 2 * 12;

#define FERRY_FMA512(I) "vfmadd231ps %%zmm13, %%zmm14, %%zmm" I "\n"
#define FERRY_FMA256(I) "vfmadd231ps %%ymm13, %%ymm14, %%ymm" I "\n"
#define FERRY_DOT_BF16(I) "vdpbf16ps %%zmm13, %%zmm14, %%zmm" I "\n"
#define FERRY_DOT_INT8(I) "vpdpbusd %%zmm13, %%zmm14, %%zmm" I "\n"
#define FERRY_MADDUBS(I) \
  "vpmaddubsw %%ymm13, %%ymm14, %%ymm12\n vpmaddwd %%ymm15, %%ymm12, %%ymm12\n vpaddd %%ymm12, %%ymm" I ", %%ymm" I "\n"

void fma512(int64_t rounds) { FERRY_LOOP(FERRY_TWELVE(FERRY_FMA512)); }
void fma256(int64_t rounds) { FERRY_LOOP(FERRY_TWELVE(FERRY_FMA256)); }
void dot_bf16(int64_t rounds) { FERRY_LOOP(FERRY_TWELVE(FERRY_DOT_BF16)); }
void dot_int8(int64_t rounds) { FERRY_LOOP(FERRY_TWELVE(FERRY_DOT_INT8)); }
void maddubs(int64_t rounds) { FERRY_LOOP(FERRY_TWELVE(FERRY_MADDUBS)); }

/// Six sums and two factors fill the eight tiles.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes kTileShapes;
constexpr double kTileStepsInRound = 6;

#define FERRY_TILE_LOOP(OP)                                                                                      \
  asm volatile(                                                                                                  \
      "ldtilecfg %1\n tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n tilezero %%tmm4\n" \
      "tilezero %%tmm5\n tilezero %%tmm6\n tilezero %%tmm7\n"                                                    \
      "1:\n" OP " %%tmm6, %%tmm7, %%tmm0\n" OP " %%tmm6, %%tmm7, %%tmm1\n" OP " %%tmm6, %%tmm7, %%tmm2\n" OP     \
      " %%tmm6, %%tmm7, %%tmm3\n" OP " %%tmm6, %%tmm7, %%tmm4\n" OP                                              \
      " %%tmm6, %%tmm7, %%tmm5\n"                                                                                \
      "dec %0\n jnz 1b\n tilerelease\n"                                                                          \
      : "+r"(rounds)                                                                                             \
      : "m"(kTileShapes)                                                                                         \
      : "cc")

void tile_bf16(int64_t rounds) { FERRY_TILE_LOOP("tdpbf16ps"); }
void tile_int8(int64_t rounds) { FERRY_TILE_LOOP("tdpbsud"); }

/// A unit's instruction (or its sequence): what it does and how often a core can begin one.
struct Unit {
  std::string_view name;
  double operations = 0;      // of one step of a chain
  double most_per_cycle = 0;  // steps
  double steps_in_round = 0;  // of `loop`
  void (*loop)(int64_t rounds) = nullptr;
};

constexpr Unit kUnits[] = {
    {"avx512_fma", 2 * 16, 2, kVectorStepsInRound, fma512},
    {"avx2_fma", 2 * 8, 2, kVectorStepsInRound, fma256},
    {"avx512_bf16", 2 * 32, 2, kVectorStepsInRound, dot_bf16},
    {"avx512_vnni", 2 * 64, 2, kVectorStepsInRound, dot_int8},
    {"avx2_maddubs", 2 * 32, 1, kVectorStepsInRound, maddubs},  // two of its three instructions need a multiplier, of two
    {"amx_bf16", 2 * 16 * 16 * 32, 1.0 / 16, kTileStepsInRound, tile_bf16},
    {"amx_int8", 2 * 16 * 16 * 64, 1.0 / 16, kTileStepsInRound, tile_int8},
    {"scalar", 2, 2, 0, nullptr},  // a multiplication and an addition, two of each
};

const Unit* find_unit(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& u) { return u.name == name; });
  return found == std::end(kUnits) ? nullptr : found;
}

/// What `work`, which returns how much it did, reaches a second.
template <class Work>
double rate_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  const auto done = static_cast<double>(work());
  return done / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double most_operations_per_cycle(std::string_view unit) {
  const Unit* found = find_unit(unit);
  return found == nullptr ? 0 : found->operations * found->most_per_cycle;
}

/// Between registers: some cores do the addition of a constant while they rename registers, in no cycle at all.
int64_t add_in_chain(int64_t num_additions) {
  constexpr int64_t kInRound = 16;
  const int64_t rounds = std::max<int64_t>(num_additions / kInRound, 1);
  uint64_t sum = 0;
  const uint64_t one = 1;
  int64_t left = rounds;
#define FERRY_ADD_FOUR "add %2, %0\n add %2, %0\n add %2, %0\n add %2, %0\n"
  asm volatile("1:\n" FERRY_ADD_FOUR FERRY_ADD_FOUR FERRY_ADD_FOUR FERRY_ADD_FOUR "dec %1\n jnz 1b\n"
               : "+r"(sum), "+r"(left)
               : "r"(one)
               : "cc");
  return static_cast<int64_t>(sum);
}

double multiply_in_assembly(std::string_view unit, int64_t rounds) {
  const Unit* found = find_unit(unit);
  if (found == nullptr || found->loop == nullptr) return 0;
  found->loop(rounds);
  return found->operations * found->steps_in_round * static_cast<double>(rounds);
}

constexpr int kMostTurns = 20;

MultiplyRates measure_multiply_rates(DType dtype, std::string_view matmul, int num_tries) {
  const std::string_view unit = multiply_unit(dtype, matmul);
  const bool is_tile = unit.starts_with("amx");
  const int64_t rounds = is_tile ? 10'000 : 40'000;  // a fifth of a millisecond or so: few tries are disturbed
  const int64_t assembly_rounds = is_tile ? 6'000 : 20'000;
  MultiplyRates best;
  const auto agree = [&] { return is_possible(best, unit) && best.probe_per_s >= 0.5 * best.assembly_per_s; };
  const auto try_probe = [&] {
    best.probe_per_s = std::max(best.probe_per_s, rate_of([&] { return multiply_in_registers(dtype, rounds, matmul); }));
  };
  const auto try_assembly = [&] {
    best.assembly_per_s = std::max(best.assembly_per_s, rate_of([&] { return multiply_in_assembly(unit, assembly_rounds); }));
  };
  for (int turn = 0; turn == 0 || (turn < kMostTurns && !agree()); ++turn) {
    best = {};
    for (int i = 0; i < num_tries; ++i) {
      best.cycles_per_s = std::max(best.cycles_per_s, rate_of([&] { return add_in_chain(800'000); }));
      if (i % 2 == 0) try_probe();
      try_assembly();
      if (i % 2 != 0) try_probe();
    }
  }
  return best;
}

bool is_possible(const MultiplyRates& rates, std::string_view unit, double tolerance) {
  if (rates.probe_per_s > tolerance * most_operations_per_cycle(unit) * rates.cycles_per_s) return false;
  return rates.assembly_per_s == 0 || rates.probe_per_s <= tolerance * rates.assembly_per_s;
}

}  // namespace ferry
