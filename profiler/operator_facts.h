#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/zones.h"

// What the model says of its operators, once a run: a report knows formulas of none. Every amount is linear in what a span's
// record tells.

namespace ferry {

/// What one span counts, of its arguments a and b (profiler/zones.h).
struct SpanCounts {
  double rows = 0;  // a
  double b = 0;
  double keys = 0;  // that attention reads from its cache, each once for a sequence
};

/// fixed + per_row * rows + per_b * b + per_key * keys
struct SpanAmount {
  double fixed = 0, per_row = 0, per_b = 0, per_key = 0;

  double of(const SpanCounts& counts) const { return fixed + per_row * counts.rows + per_b * counts.b + per_key * counts.keys; }
  bool operator==(const SpanAmount&) const = default;
};

/// One dimension of a tensor: a number, or one that each span has of its own.
struct TensorDim {
  enum class Kind : uint8_t { kFixed, kRows, kB, kKeys };
  Kind kind = Kind::kFixed;
  int64_t size = 0;  // of a fixed one

  TensorDim(int64_t fixed) : size(fixed) {}   // NOLINT(google-explicit-constructor): lists of dimensions read like shapes
  TensorDim(Kind of_span) : kind(of_span) {}  // NOLINT(google-explicit-constructor)
  TensorDim() = default;
  int64_t of(const SpanCounts& counts) const;
  bool operator==(const TensorDim&) const = default;
};

struct TensorFacts {
  std::string type;  // "DT_BF16", "FLOAT", "INT8", "INT4", "INT32"
  std::vector<TensorDim> dims;
  bool operator==(const TensorFacts&) const = default;
};

/// What an operator's multiply-adds multiply; nothing if it has none worth the name.
enum class Factors : uint8_t { kNone, kValues, kCodes };

/// One operator: what it must do at least, from its shapes. A multiply-add is two operations, every operand moves once. Weights
/// and states are in the fixed, per_b and per_key parts of `bytes`, rows that come and go in per_row.
struct OperatorFacts {
  Zone zone = Zone::kStep;
  int64_t num_layers = 1;      // that have it; 1 outside of layers, too
  int64_t rows_per_token = 1;  // a of its spans for each of the step's rows: heads, or experts of a token
  Factors factors = Factors::kNone;
  SpanAmount flop, bytes;
  double row_keys_per_b = 0;                 // of attention: rows times the keys that each sees, for each b
  std::vector<TensorFacts> inputs, outputs;  // weights, caches and states among them

  /// Of a span with these arguments; `num_sequences` >= 1 is the step's. A cache is read once per sequence: exact when every
  /// sequence has one row, the mean context for one prompt's rows, an estimate for a mixed step.
  SpanCounts counts(uint32_t a, uint32_t b, int64_t num_sequences) const;
  bool operator==(const OperatorFacts&) const = default;
};

/// By zone; nullptr if the model has none such.
const OperatorFacts* find_operator(const std::vector<OperatorFacts>& operators, Zone zone);

}  // namespace ferry
