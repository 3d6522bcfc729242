#include "runtime/options/placement_options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "runtime/options/option_checks.h"

namespace ferry {
namespace {

constexpr double kMostShare = 64;  // times the experts
constexpr int64_t kMostSlots = 1 << 20;

template <class Number>
std::optional<Number> parse_all(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

RedundancyChoice parse_redundancy(const std::string& text) {
  if (text == "2x") return {.is_twice = true};
  if (text.ends_with('%')) {
    const std::optional<double> percent = parse_all<double>(std::string_view(text).substr(0, text.size() - 1));
    if (percent && *percent >= 0 && *percent <= 100 * kMostShare) return {.share = *percent / 100};
  } else if (const std::optional<int64_t> slots = parse_all<int64_t>(text); slots && *slots >= 0 && *slots <= kMostSlots) {
    return {.extra_slots = *slots};
  }
  throw CLI::ValidationError("--redundancy: '" + text +
                             "'; allowed: a share of a layer's experts such as 12.5%, a number of copies such as 32, or 2x");
}

}  // namespace

Redundancy RedundancyChoice::of(int64_t num_experts) const {
  if (is_twice) return {.kind = Redundancy::Kind::kTwice};
  const auto of_share = static_cast<int64_t>(std::ceil(share * static_cast<double>(num_experts)));
  return {.kind = Redundancy::Kind::kExtraSlots, .extra_slots = extra_slots + of_share};
}

void add_placement_options(CLI::App& app, PlacementOptions& o) {
  using enum PlacementOptions::Policy;
  app.add_option_function<std::string>(
      "--placement",
      [&o](const std::string& text) {
        o.policy = text == "auto"         ? kAuto
                   : text == "contiguous" ? kContiguous
                   : text == "eplb"       ? kEplb
                   : text == "spread"     ? kSpread
                                          : kFile;
        if (o.policy == kFile) o.file = text;
      },
      "which worker holds which experts: contiguous slices, eplb (by rows), spread (by time), or a file with a map; default "
      "contiguous, with --redundancy or --expert-load spread");
  app.add_option_function<std::string>(
      "--redundancy", [&o](const std::string& text) { o.redundancy = parse_redundancy(text); },
      "more copies of experts, on other workers: 12.5% of a layer's, 32 a layer, or 2x: two of each, so that every worker can "
      "be lost without a pause; default 0");
  app.add_option("--rebalance", o.rebalance_steps,
                 "steps after which experts may move to workers where they take less time, by what was asked of them of late; "
                 "0: they move only when workers come or go; default 0")
      ->check(integer_in(0, int64_t{1} << 40));
}

}  // namespace ferry
