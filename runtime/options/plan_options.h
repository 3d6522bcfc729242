#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/plan_types.h"

namespace CLI {
class App;
}

namespace ferry {

struct EngineOptions;

/// Of `ferry plan`; model, dtype, quantization, threads and kernels are in EngineOptions.
struct PlanOptions {
  static constexpr double kSkew = 0.5;
  std::filesystem::path trace;  // recorded routing; empty: drawn
  std::optional<double> skew;   // of drawn routing: the slope of popularity over rank; absent: kSkew
  std::vector<int64_t> workers{0, 1, 2, 4};
  std::vector<PlanCopies> copies{PlanCopies{}};
  std::vector<int64_t> batches{1, 16};
  std::vector<int64_t> coordinators{1};
  std::vector<int64_t> depths{0};  // tokens behind which prompts begin and sequences decode
  int64_t context = 64;            // tokens of each sequence that decodes, behind those
  int64_t prompt = 512;            // tokens
  bool is_spread = false;          // without copies, too
  std::filesystem::path hosts;     // file of machines
  bool measure = false;            // this machine
  std::filesystem::path save;      // where what was measured goes
  double link_gbit_per_s = 0;  // with link_us: every rank has a machine of its own, like the first, behind such a link; 0: not
  double link_us = 0;          // round trip
  std::filesystem::path svg;
  bool json = false;
};

void add_plan_options(CLI::App& app, PlanOptions& options, EngineOptions& engine);

/// What no single option can tell. Empty if all is well.
std::string check_together(const PlanOptions& options, const EngineOptions& engine);

/// "0", "12.5%", "2x"; nothing for other text.
std::optional<PlanCopies> parse_copies(const std::string& text);
/// "1,2,4", "1..8" or both, each number once, in order; nothing for other text and beyond `most`.
std::optional<std::vector<int64_t>> parse_ranges(const std::string& text, int64_t least, int64_t most);

}  // namespace ferry
