#include "moe/routing/routing_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <span>

#include "runtime/base/quoting.h"

namespace ferry {
namespace {

ExpertLoads add_up(const RoutingTrace& trace, const std::function<bool(const RoutingStep&)>& counts) {
  const RoutingShape& shape = trace.shape;
  const auto size = static_cast<std::size_t>(shape.num_layers() * shape.num_experts);
  ExpertLoads loads{.num_layers = shape.num_layers(), .num_experts = shape.num_experts};
  loads.rows.assign(size, 0);
  loads.touched.assign(size, 0);
  std::vector<double> rows(static_cast<std::size_t>(shape.num_experts));
  for (const RoutingStep& step : trace.steps) {
    if (!counts(step)) continue;
    ++loads.num_steps;
    for (int64_t l = 0; l < shape.num_layers(); ++l) {
      std::ranges::fill(rows, 0.0);
      for (const uint16_t id : trace.of(step, l)) ++rows[id];
      const auto first = static_cast<std::size_t>(l * shape.num_experts);
      for (std::size_t e = 0; e < rows.size(); ++e) {
        loads.rows[first + e] += rows[e];
        loads.touched[first + e] += rows[e] > 0 ? 1 : 0;
      }
    }
  }
  return loads;
}

/// Least squares of log rows over log rank of one layer's falling rows.
double zipf_slope(std::span<const double> falling) {
  double n = 0, x_sum = 0, y_sum = 0, xx = 0, xy = 0;
  for (std::size_t i = 0; i < falling.size() && falling[i] > 0; ++i) {
    const double x = std::log(static_cast<double>(i + 1)), y = std::log(falling[i]);
    ++n, x_sum += x, y_sum += y, xx += x * x, xy += x * y;
  }
  const double spread = n * xx - x_sum * x_sum;
  return n < 2 || spread <= 0 ? 0 : -(n * xy - x_sum * y_sum) / spread;
}

std::string line(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string line(const char* format, ...) {
  std::string text(400, '\0');
  va_list arguments;
  va_start(arguments, format);
  const int size = std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  text.resize(static_cast<std::size_t>(std::clamp(size, 0, static_cast<int>(text.size()) - 1)));
  return text;
}

std::string phase_text(const RoutingTrace& trace, RoutingPhase phase) {
  const RoutingSummary s = summarise_routing(trace, phase);
  const char* const name = phase == RoutingPhase::kDecode ? "decode" : "prefill";
  if (s.num_steps == 0) return line("%-8s no steps\n", name);
  return line("%-8s %lld step%s, %lld row%s, %.1f a step: %.1f of %lld experts touched in a step and layer\n", name,
              static_cast<long long>(s.num_steps), s.num_steps == 1 ? "" : "s", static_cast<long long>(s.num_rows),
              s.num_rows == 1 ? "" : "s", s.rows_per_step, s.touched, static_cast<long long>(trace.shape.num_experts)) +
         line(
             "         hottest expert %.2f x the mean (the most: layer %lld, expert %lld), top eighth %.0f %% of the rows, "
             "%.1f "
             "without any, Zipf %.2f\n",
             s.hottest, static_cast<long long>(s.hottest_layer), static_cast<long long>(s.hottest_expert), 100 * s.top_eighth,
             s.unused, s.zipf);
}

}  // namespace

ExpertLoads loads_of(const RoutingTrace& trace) {
  return add_up(trace, [](const RoutingStep&) { return true; });
}

ExpertLoads loads_of(const RoutingTrace& trace, RoutingPhase phase) {
  return add_up(trace, [phase](const RoutingStep& step) { return step.phase == phase; });
}

RoutingSummary summarise_routing(const RoutingTrace& trace, RoutingPhase phase) {
  RoutingSummary s;
  for (const RoutingStep& step : trace.steps) {
    if (step.phase != phase) continue;
    ++s.num_steps;
    s.num_rows += step.num_rows;
  }
  if (s.num_steps == 0) return s;
  const ExpertLoads loads = loads_of(trace, phase);
  const auto num_layers = static_cast<double>(loads.num_layers);
  const auto num_experts = static_cast<std::size_t>(loads.num_experts);
  s.rows_per_step = static_cast<double>(s.num_rows) / static_cast<double>(s.num_steps);
  double most = 0;
  for (std::size_t l = 0; l < trace.shape.layers.size(); ++l) {
    const auto rows = std::span(loads.rows).subspan(l * num_experts, num_experts);
    std::vector<double> falling(rows.begin(), rows.end());
    std::ranges::sort(falling, std::greater());
    const double sum = static_cast<double>(s.num_rows * trace.shape.top_k);
    const std::size_t eighth = std::max<std::size_t>(1, num_experts / 8);
    for (std::size_t i = 0; i < eighth; ++i) s.top_eighth += falling[i] / sum / num_layers;
    s.hottest += falling[0] / sum * static_cast<double>(num_experts) / num_layers;
    s.unused += static_cast<double>(std::ranges::count(falling, 0.0)) / num_layers;
    s.zipf += zipf_slope(falling) / num_layers;
    for (std::size_t e = 0; e < num_experts; ++e)
      s.touched += loads.touched[l * num_experts + e] / loads.num_steps / num_layers;
    if (falling[0] > most) {
      most = falling[0];
      s.hottest_layer = trace.shape.layers[l];
      s.hottest_expert = std::ranges::max_element(rows) - rows.begin();
    }
  }
  return s;
}

std::string routing_text(const RoutingTrace& trace) {
  const RoutingShape& shape = trace.shape;
  std::string text = in_quotes(shape.model) +
                     line(": %lld layers of %lld experts, %lld a token; %lld rows in %zu steps",
                          static_cast<long long>(shape.num_layers()), static_cast<long long>(shape.num_experts),
                          static_cast<long long>(shape.top_k), static_cast<long long>(trace.num_rows()), trace.steps.size());
  if (trace.num_left_out > 0) text += line(", %lld more left out for lack of room", static_cast<long long>(trace.num_left_out));
  return text + "\n" + phase_text(trace, RoutingPhase::kPrefill) + phase_text(trace, RoutingPhase::kDecode);
}

}  // namespace ferry
