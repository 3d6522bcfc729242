#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "moe/placement/choose.h"
#include "moe/placement/eplb.h"
#include "moe/placement/load_file.h"
#include "moe/placement/rebalance.h"
#include "moe/placement/spread.h"
#include "runtime/base/error.h"
#include "runtime/base/text_file.h"

// What placements and choices cost, and how even they make the work of the workers. Checks first what it times. The balance is
// counted on drawn routing, or on routing of a run (--record, as write_load_record writes it, a step a window): placed by the
// first half of the steps, judged on the other.

namespace {

using ferry::ExpertChoice;
using ferry::ExpertChooser;
using ferry::ExpertCost;
using ferry::LayerPlacement;
using ferry::LoadRecord;
using ferry::Redundancy;
using ferry::WorkerCapacity;
using std::chrono::duration;
using std::chrono::steady_clock;

/// Of an expert of 2048 x 512 in bf16 on two Zen 4 cores, in us: only the ratio counts.
constexpr ExpertCost kCost{.fixed = 210, .per_row = 13};

struct Settings {
  bool is_quick = false;
  std::string record;
  int64_t num_tokens = 16;  // of a drawn step
  double slope = 0.5;       // of the drawn popularity
};

void require(bool is_true, const char* what) {
  if (!is_true) throw ferry::Error(ferry::ErrorCode::kInternal, std::string("wrong: ") + what);
}

/// Steps of `num_tokens` tokens of which each takes the 8 experts with the largest log(popularity) + Gumbel noise; popularity
/// falls with the rank to the power of -slope, and every layer has its own order.
LoadRecord draw_record(int64_t num_steps, int64_t num_layers, int64_t num_experts, const Settings& settings) {
  LoadRecord record{.num_windows = num_steps, .num_layers = num_layers, .num_experts = num_experts};
  record.rows.resize(static_cast<std::size_t>(num_steps * num_layers * num_experts), 0);
  std::mt19937 random(7);
  std::vector<std::vector<double>> log_popularity(static_cast<std::size_t>(num_layers));
  for (auto& layer : log_popularity) {
    for (int64_t e = 0; e < num_experts; ++e) layer.push_back(-settings.slope * std::log(1.0 + static_cast<double>(e)));
    std::shuffle(layer.begin(), layer.end(), random);
  }
  std::vector<std::pair<double, std::size_t>> keys(static_cast<std::size_t>(num_experts));
  for (int64_t i = 0; i < num_steps * num_layers; ++i) {
    const std::vector<double>& popularity = log_popularity[static_cast<std::size_t>(i % num_layers)];
    int32_t* rows = record.rows.data() + i * num_experts;
    for (int64_t t = 0; t < settings.num_tokens; ++t) {
      for (std::size_t e = 0; e < keys.size(); ++e) {
        keys[e] = {popularity[e] - std::log(-std::log((random() + 0.5) / 4294967296.0)), e};
      }
      std::partial_sort(keys.begin(), keys.begin() + 8, keys.end(), std::greater<>());
      for (std::size_t k = 0; k < 8; ++k) ++rows[keys[k].second];
    }
  }
  return record;
}

/// The mean cost and rows of a layer's experts in steps [first, last).
std::vector<double> mean_cost(const LoadRecord& record, int64_t layer, int64_t first, int64_t last, const ExpertCost& cost) {
  std::vector<double> sum(static_cast<std::size_t>(record.num_experts), 0.0);
  for (int64_t step = first; step < last; ++step) {
    const std::span<const int32_t> rows = record.layer(step, layer);
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += cost.of(rows[e]) / static_cast<double>(last - first);
  }
  return sum;
}

std::vector<uint64_t> holder_masks(const LayerPlacement& placement, int64_t num_experts) {
  std::vector<uint64_t> masks(static_cast<std::size_t>(num_experts), 0);
  for (std::size_t w = 0; w < placement.size(); ++w) {
    for (const ferry::LogicalExpertId e : placement[w]) masks[static_cast<std::size_t>(e.value)] |= uint64_t{1} << w;
  }
  return masks;
}

LayerPlacement slices(int64_t num_experts, int64_t num_workers) {
  LayerPlacement placement(static_cast<std::size_t>(num_workers));
  for (int64_t e = 0; e < num_experts; ++e) {
    placement[static_cast<std::size_t>(e * num_workers / num_experts)].push_back({static_cast<int32_t>(e)});
  }
  return placement;
}

std::vector<WorkerCapacity> equal_workers(int64_t num_workers, int64_t num_copies) {
  return std::vector<WorkerCapacity>(static_cast<std::size_t>(num_workers),
                                     {.slots = static_cast<int32_t>((num_copies + num_workers - 1) / num_workers)});
}

LayerPlacement place_eplb(const LoadRecord& record, int64_t layer, int64_t last, int64_t num_extra, int64_t num_workers) {
  const std::vector<double> rows = mean_cost(record, layer, 0, last, {.fixed = 0, .per_row = 1});
  const std::vector<float> loads(rows.begin(), rows.end());
  const int64_t num_slots = ferry::eplb_num_slots(record.num_experts, num_extra, num_workers);
  return ferry::eplb_placement(ferry::eplb(loads, {.num_slots = num_slots, .num_ranks = num_workers}), num_workers);
}

/// Times of steps: of the fullest worker, and the mean over the workers, both summed.
struct Balance {
  double most = 0, mean = 0;
};

/// Whole experts, chosen among the holders.
void judge_choice(const LoadRecord& record, int64_t layer, const LayerPlacement& placement, Balance& balance) {
  const std::vector<uint64_t> holders = holder_masks(placement, record.num_experts);
  ExpertChooser chooser(record.num_experts, std::vector<double>(placement.size(), 1.0), kCost);
  for (int64_t step = record.num_windows / 2; step < record.num_windows; ++step) {
    const ExpertChoice& choice = chooser.choose(record.layer(step, layer), holders, ~uint64_t{0});
    balance.most += *std::max_element(choice.load.begin(), choice.load.end());
    balance.mean += std::accumulate(choice.load.begin(), choice.load.end(), 0.0) / static_cast<double>(placement.size());
  }
}

/// Rows dealt over the copies in turn, as vLLM and SGLang do; the mean is that of whole experts.
void judge_split(const LoadRecord& record, int64_t layer, const LayerPlacement& placement, Balance& balance) {
  const std::vector<uint64_t> holders = holder_masks(placement, record.num_experts);
  for (int64_t step = record.num_windows / 2; step < record.num_windows; ++step) {
    const std::span<const int32_t> rows = record.layer(step, layer);
    std::vector<double> load(placement.size(), 0.0);
    for (std::size_t e = 0; e < rows.size(); ++e) {
      balance.mean += kCost.of(rows[e]) / static_cast<double>(placement.size());
      const int32_t copies = std::popcount(holders[e]);
      int32_t copy = 0;
      for (uint64_t rest = holders[e]; rest != 0; rest &= rest - 1, ++copy) {
        load[static_cast<std::size_t>(std::countr_zero(rest))] +=
            kCost.of(rows[e] / copies + (copy < rows[e] % copies ? 1 : 0));
      }
    }
    balance.most += *std::max_element(load.begin(), load.end());
  }
}

void print_balance(const LoadRecord& record, int64_t num_workers) {
  const int64_t half = record.num_windows / 2, e = record.num_experts, eighth = e / 8;
  Balance contiguous, one, split, extra, twice;
  for (int64_t l = 0; l < record.num_layers; ++l) {
    const std::vector<double> cost = mean_cost(record, l, 0, half, kCost);
    judge_choice(record, l, slices(e, num_workers), contiguous);
    judge_choice(record, l, ferry::spread(cost, equal_workers(num_workers, e), {}), one);
    judge_split(record, l, place_eplb(record, l, half, eighth, num_workers), split);
    judge_choice(record, l, ferry::spread(cost, equal_workers(num_workers, e + eighth), {.extra_slots = eighth}), extra);
    judge_choice(record, l, ferry::spread(cost, equal_workers(num_workers, 2 * e), {.kind = Redundancy::Kind::kTwice}), twice);
  }
  const auto ratio = [](const Balance& b) { return b.mean == 0 ? 1 : b.most / b.mean; };
  std::printf("%3ld workers   contiguous %.2f   spread %.2f   eplb 12.5%%, split %.2f   spread 12.5%% %.2f   spread 2x %.2f\n",
              static_cast<long>(num_workers), ratio(contiguous), ratio(one), ratio(split), ratio(extra), ratio(twice));
}

void print_time(const std::string& name, int num_runs, const std::function<void()>& call) {
  std::vector<double> us;
  for (int run = 0; run <= num_runs; ++run) {
    const auto start = steady_clock::now();
    call();
    us.push_back(duration<double, std::micro>(steady_clock::now() - start).count());
  }
  us.erase(us.begin());  // the first one warms up
  std::sort(us.begin(), us.end());
  std::printf("%-66s best %10.2f us   median %10.2f us\n", name.c_str(), us.front(), us[us.size() / 2]);
}

void time_placements(const LoadRecord& record, int num_runs) {
  const int64_t num_workers = 8, e = record.num_experts, half = record.num_windows / 2;
  const std::vector<WorkerCapacity> workers = equal_workers(num_workers, e + e / 8);
  std::vector<std::vector<double>> cost, later;
  std::vector<LayerPlacement> placed;
  for (int64_t l = 0; l < record.num_layers; ++l) {
    cost.push_back(mean_cost(record, l, 0, half, kCost));
    later.push_back(mean_cost(record, l, half, record.num_windows, kCost));
    placed.push_back(ferry::spread(cost.back(), workers, {.extra_slots = e / 8}));
    const std::vector<int32_t> copies = ferry::copies_in(placed.back(), e);
    require(
        std::accumulate(copies.begin(), copies.end(), int64_t{0}) == e + e / 8 && !std::count(copies.begin(), copies.end(), 0),
        "spread lost a copy");
  }
  const std::string of =
      " " + std::to_string(record.num_layers) + " layers x " + std::to_string(e) + " experts, 8 workers, 12.5 %";
  std::vector<std::vector<float>> rows;
  for (int64_t l = 0; l < record.num_layers; ++l) {
    const std::vector<double> mean = mean_cost(record, l, 0, half, {.fixed = 0, .per_row = 1});
    rows.emplace_back(mean.begin(), mean.end());
  }
  print_time("eplb" + of, num_runs, [&] {
    for (const auto& layer : rows) ferry::eplb(layer, {.num_slots = e + e / 8, .num_ranks = num_workers});
  });
  print_time("spread" + of, num_runs, [&] {
    for (const auto& layer : cost) ferry::spread(layer, workers, {.extra_slots = e / 8});
  });
  const ferry::RebalanceLimits limits{.expert_bytes = 1, .budget_bytes = 1 << 20};
  print_time("rebalance" + of, num_runs, [&] { ferry::rebalance(later, placed, workers, {.extra_slots = e / 8}, limits); });
}

void time_choice(const LoadRecord& record, int64_t num_workers, int num_runs) {
  const std::vector<double> cost = mean_cost(record, 0, 0, record.num_windows / 2, kCost);
  const LayerPlacement placement =
      ferry::spread(cost, equal_workers(num_workers, 2 * record.num_experts), {.kind = Redundancy::Kind::kTwice});
  const std::vector<uint64_t> holders = holder_masks(placement, record.num_experts);
  ExpertChooser chooser(record.num_experts, std::vector<double>(placement.size(), 1.0), kCost);
  const std::span<const int32_t> rows = record.layer(record.num_windows - 1, 0);
  const ExpertChoice& choice = chooser.choose(rows, holders, ~uint64_t{0});
  int64_t num_touched = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    num_touched += rows[e] > 0;
    require((rows[e] > 0) == (choice.worker[e] >= 0), "an expert was lost");
    require(rows[e] == 0 || (holders[e] >> choice.worker[e] & 1) == 1, "an expert is not where it was sent");
  }
  print_time("choose " + std::to_string(num_touched) + " of " + std::to_string(rows.size()) + " experts, " +
                 std::to_string(num_workers) + " workers, 2x",
             num_runs, [&] { chooser.choose(rows, holders, ~uint64_t{0}); });
}

void run(const Settings& settings) {
  const int64_t num_steps = settings.is_quick ? 4 : 64;
  const int num_runs = settings.is_quick ? 2 : 20;
  Settings drawn = settings;
  if (settings.record.empty()) {
    time_placements(draw_record(num_steps, settings.is_quick ? 2 : 40, 256, drawn), num_runs);
    for (const int64_t num_tokens : {1, 16, 64}) {
      drawn.num_tokens = num_tokens;
      const LoadRecord record = draw_record(4, 1, 256, drawn);
      time_choice(record, 8, 100 * num_runs);
    }
  }
  const LoadRecord record = settings.record.empty()
                                ? draw_record(num_steps, settings.is_quick ? 1 : 8, 256, settings)
                                : ferry::read_load_record(ferry::read_text_file(settings.record), settings.record);
  std::printf("slowest worker / mean, %s, %ld steps of %ld layers, %ld experts\n",
              settings.record.empty() ? "drawn" : settings.record.c_str(),
              static_cast<long>(record.num_windows - record.num_windows / 2), static_cast<long>(record.num_layers),
              static_cast<long>(record.num_experts));
  for (const int64_t num_workers : {2, 4, 8, 16}) print_balance(record, num_workers);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Placements of experts and the choice of a holder: time and balance");
  app.add_flag("--quick", settings.is_quick, "few steps and runs: does the program still work?");
  app.add_option("--record", settings.record, "rows per step, layer and expert of a run, instead of drawn ones");
  app.add_option("--tokens", settings.num_tokens, "tokens of a drawn step")->check(CLI::Range(1, 4096));
  app.add_option("--slope", settings.slope, "of the drawn popularity, 0 is uniform")->check(CLI::Range(0.0, 3.0));
  CLI11_PARSE(app, argc, argv);
  try {
    run(settings);
  } catch (const ferry::Error& error) {
    std::fprintf(stderr, "placement_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
