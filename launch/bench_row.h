#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "launch/recording_cost.h"
#include "launch/roof_share.h"
#include "launch/sample.h"
#include "launch/warm_up.h"
#include "moe/token_dispatcher.h"
#include "profiler/zones.h"

// The rows of `ferry bench`: what is measured, what it gave, and how both are shown.

namespace ferry {

/// What a row measures: a prompt of `size` tokens, or `size` sequences that decode, behind a context of `depth` tokens.
struct BenchCase {
  Phase phase = Phase::kPrefill;
  int64_t size = 0;
  int64_t depth = 0;

  /// "prefill 512", "decode 4 @ 8192".
  std::string name() const;
};

/// Tokens per second, the work that a token takes, and roofs measured before and after, of which the better has the word.
struct BenchRow {
  BenchCase what;
  Sample tokens_per_s;
  Work work;  // of a token
  Roofs roofs;
  WarmUp warm_up;
  TransportCount transport;               // of all repetitions
  std::optional<MeasuredCost> recording;  // if that was asked for

  RoofShare share() const { return share_of_roof(work, tokens_per_s.median, roofs); }
  bool is_possible() const { return share().nearer() <= kMostShare; }
};

/// Returns the first of up to `most_rows` measurements whose shares are possible, or else the last one. The memory of a shared
/// host can become faster between a row and its roofs. Then both are measured again, so that they belong together.
BenchRow measure_possible_row(int most_rows, const std::function<BenchRow()>& measure);

/// `limits` are those of the warm-up. `what` names what has the roofs: "threads", "device".
void print_bench_head(const WarmUpLimits& limits, const std::string& what);
void print_bench_row(const BenchRow& row);
nlohmann::ordered_json bench_row_json(const BenchRow& row);
nlohmann::ordered_json sample_json(const Sample& sample);

}  // namespace ferry
