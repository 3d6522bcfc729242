#include "launch/bench_row.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using nlohmann::ordered_json;

/// `total` of all layers that `count` has seen, for one of them.
double per_layer(double total, const TransportCount& count) { return total / static_cast<double>(count.layers); }

void print_transport(const TransportCount& count) {
  if (count.layers == 0) return;
  std::printf("%24s a layer: %.1f kB to the workers, %.1f kB back; %.0f us waited, %.0f us of it for the transport\n", "",
              per_layer(static_cast<double>(count.bytes_out) * 1e-3, count),
              per_layer(static_cast<double>(count.bytes_in) * 1e-3, count), per_layer(count.wait_s * 1e6, count),
              per_layer(count.transport_s * 1e6, count));
}

ordered_json transport_json(const TransportCount& count) {
  if (count.layers == 0) return nullptr;
  return {{"bytes_out", per_layer(static_cast<double>(count.bytes_out), count)},
          {"bytes_in", per_layer(static_cast<double>(count.bytes_in), count)},
          {"wait_us", per_layer(count.wait_s * 1e6, count)},
          {"transport_us", per_layer(count.transport_s * 1e6, count)}};
}

/// In columns: "prefill     512 @ 8192".
std::string label(const BenchCase& what) {
  char text[64];
  std::snprintf(text, sizeof text, "%-8s %6lld", phase_name(what.phase), static_cast<long long>(what.size));
  return text + (what.depth > 0 ? " @ " + std::to_string(what.depth) : "");
}

}  // namespace

std::string BenchCase::name() const {
  return phase_name(phase) + (" " + std::to_string(size)) + (depth > 0 ? " @ " + std::to_string(depth) : "");
}

BenchRow measure_possible_row(int most_rows, const std::function<BenchRow()>& measure) {
  BenchRow row = measure();
  for (int num_rows = 1; num_rows < most_rows && !row.is_possible(); ++num_rows) row = measure();
  return row;
}

void print_bench_head(const WarmUpLimits& limits, const std::string& what) {
  std::printf("warm-up: until two runs in a row are within %.0f %%, or %lld runs or %.0f s\n", 100 * limits.tolerance,
              static_cast<long long>(limits.most_runs), limits.most_seconds);
  std::printf("%-24s %10s %10s %10s   share of what the %s   warm after\n", "phase      size @ depth", "tokens/s", "min", "max",
              what.c_str());
}

void print_bench_row(const BenchRow& row) {
  const RoofShare share = row.share();
  std::printf("%-24s %10.1f %10.1f %10.1f", label(row.what).c_str(), row.tokens_per_s.median, row.tokens_per_s.min,
              row.tokens_per_s.max);
  std::printf("   %5.1f %% of %5.1f GB/s   %5.1f %% of %.0f GFLOP/s%s", 100 * share.read, row.roofs.read_bytes_per_s * 1e-9,
              100 * share.flops, row.roofs.mixed_flops_per_s(row.work) * 1e-9, row.is_possible() ? "" : "   IMPOSSIBLE");
  std::printf("   %lld runs%s\n", static_cast<long long>(row.warm_up.num_runs), row.warm_up.is_steady ? "" : ", NOT STEADY");
  print_transport(row.transport);
  if (row.recording) print_recording_cost(*row.recording);
  std::fflush(stdout);
}

ordered_json sample_json(const Sample& sample) {
  return {{"median", sample.median}, {"min", sample.min}, {"max", sample.max}, {"samples", sample.values}};
}

ordered_json bench_row_json(const BenchRow& row) {
  const RoofShare share = row.share();
  ordered_json json = {
      {row.what.phase == Phase::kPrefill ? "prompt_tokens" : "sequences", row.what.size},
      {"name", row.what.name()},
      {"depth", row.what.depth},
      {"tokens_per_s", sample_json(row.tokens_per_s)},
      {"bytes_per_token", row.work.bytes},
      {"flops_per_token", row.work.all_flops()},
      {"read_bytes_per_s", row.roofs.read_bytes_per_s},
      {"flops_per_s", row.roofs.mixed_flops_per_s(row.work)},
      {"share_of_read", share.read},
      {"share_of_flops", share.flops},
      {"share_of_roof", share.nearer()},
      {"is_possible", row.is_possible()},
      {"warm_up", {{"runs", row.warm_up.num_runs}, {"seconds", row.warm_up.seconds}, {"is_steady", row.warm_up.is_steady}}},
      {"transport_per_layer", transport_json(row.transport)}};
  if (row.recording) json["recording_cost"] = recording_cost_json(*row.recording);
  return json;
}

}  // namespace ferry
