#include "runtime/plan/plan_picture.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/plan/step_model.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

template <class... Values>
std::string text_of(const char* format, Values... values) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

long long whole(int64_t value) { return static_cast<long long>(value); }

std::string split_text(const StepTimes& t) {
  const double sum = t.sum() / 100;
  return text_of("%3.0f %3.0f %3.0f %3.0f", t.coordinator / sum, t.experts / sum, t.transport / sum, t.imbalance / sum);
}

ordered_json split_json(const StepTimes& t) {
  return {{"coordinator_s", t.coordinator},
          {"experts_s", t.experts},
          {"transport_s", t.transport},
          {"imbalance_s", t.imbalance},
          {"sum_s", t.sum()}};
}

std::string line_name(const PlanCase& c) {
  std::string name = "batch " + std::to_string(c.batch) + ", copies " + c.copies.name;
  if (c.coordinators > 1) name += ", " + std::to_string(c.coordinators) + " coordinators";
  return name;
}

}  // namespace

std::string plan_table(std::span<const PlanResult> results) {
  const std::vector<std::size_t> best = best_of(results);
  std::string text =
      "                                 tokens/s           decode: % of a step              GB of weights     sequences   "
      "after a death\n"
      "  workers coord. copies batch   prefill   decode   coord. experts transport uneven   coord.  worker   that fit    "
      "tokens/s  without a copy\n";
  for (std::size_t i = 0; i < results.size(); ++i) {
    const PlanResult& r = results[i];
    const PlanCase& c = r.asked;
    const bool is_best = std::ranges::find(best, i) != best.end();
    text += text_of("%c %7lld %6lld %6s %5lld %9.1f %8.1f   ", is_best ? '*' : ' ', whole(c.workers), whole(c.coordinators),
                    c.copies.name.c_str(), whole(c.batch), r.prefill_tokens_per_s, r.decode_tokens_per_s);
    text += split_text(r.decode) + text_of("  %-11s", r.bound.c_str());
    text += text_of(" %7.2f %7.2f %10lld", r.coordinator_bytes * 1e-9, r.worker_bytes * 1e-9, whole(r.most_sequences));
    if (r.after_death_tokens_per_s > 0) {
      text += text_of("   %9.1f", r.after_death_tokens_per_s);
      text += r.lost_share == 0 ? std::string("  none")
                                : text_of("  %.0f %% of the experts, %.1f s to read", 100 * r.lost_share, r.reload_s);
    }
    text += r.fits ? "\n" : "  DOES NOT FIT\n";
  }
  return text;
}

std::string plan_json(const PlanModel& model, std::span<const PlanHost> hosts, std::span<const PlanResult> results) {
  ordered_json list = ordered_json::array(), machines = ordered_json::array();
  const std::vector<std::size_t> best = best_of(results);
  for (const PlanHost& host : hosts)
    machines.push_back({{"name", host.name}, {"count", host.count}, {"is_measured", host.is_measured}});
  for (std::size_t i = 0; i < results.size(); ++i) {
    const PlanResult& r = results[i];
    list.push_back(
        {{"workers", r.asked.workers},
         {"coordinators", r.asked.coordinators},
         {"redundancy", r.asked.copies.name},
         {"placement", r.asked.is_spread || r.asked.copies.name != "0" ? "spread" : "slices"},
         {"batch", r.asked.batch},
         {"context", r.asked.context},
         {"prompt", r.asked.prompt},
         {"prefill_tokens_per_s", r.prefill_tokens_per_s},
         {"decode_tokens_per_s", r.decode_tokens_per_s},
         {"decode", split_json(r.decode)},
         {"prefill", split_json(r.prefill)},
         {"bound", r.bound},
         {"coordinator_bytes", r.coordinator_bytes},
         {"worker_bytes", r.worker_bytes},
         {"cache_bytes", r.cache_bytes},
         {"most_sequences", r.most_sequences},
         {"fits", r.fits},
         {"after_death",
          {{"decode_tokens_per_s", r.after_death_tokens_per_s}, {"lost_share", r.lost_share}, {"reload_s", r.reload_s}}},
         {"is_best", std::ranges::find(best, i) != best.end()}});
  }
  const ordered_json object{
      {"shape", model.shape}, {"layers", model.num_layers}, {"hosts", machines}, {"configurations", list}};
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string plan_svg(std::span<const PlanResult> results) {
  constexpr double kWidth = 640, kHeight = 400, kLeft = 70, kBottom = 40, kTop = 20, kRight = 230;
  constexpr std::array kColours{"#1b6ca8", "#c8553d", "#588157", "#8d5a97", "#b08900", "#4a4e69"};
  std::map<std::string, std::vector<const PlanResult*>> lines;
  double most = 0, last = 1;
  for (const PlanResult& r : results) {
    lines[line_name(r.asked)].push_back(&r);
    most = std::max(most, r.decode_tokens_per_s);
    last = std::max(last, static_cast<double>(r.asked.workers));
  }
  const auto x = [&](double workers) { return kLeft + workers / last * (kWidth - kLeft - kRight); };
  const auto y = [&](double rate) { return kHeight - kBottom - rate / most * (kHeight - kBottom - kTop); };
  std::string svg = text_of(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    svg +=
        text_of("<path d=\"M%.1f %.1fH%.1f\" stroke=\"#dddddd\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n",
                kLeft, y(most * i / 4), x(last), kLeft - 6, y(most * i / 4) + 4, most * i / 4);
  }
  svg += text_of("<text x=\"%.1f\" y=\"%.1f\">workers</text><text x=\"8\" y=\"14\">tokens/s, decode</text>\n",
                 (x(0) + x(last)) / 2 - 20, kHeight - 8);
  std::size_t number = 0;
  std::map<int64_t, bool> marked;
  for (auto& [name, points] : lines) {
    const char* const colour = kColours[number % kColours.size()];
    std::ranges::sort(points, {}, [](const PlanResult* r) { return r->asked.workers; });
    svg += text_of("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (const PlanResult* r : points)
      svg += text_of("%.1f,%.1f ", x(static_cast<double>(r->asked.workers)), y(r->decode_tokens_per_s));
    svg += "\"/>\n";
    for (const PlanResult* r : points) {
      const double at = x(static_cast<double>(r->asked.workers));
      svg += text_of("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", at, y(r->decode_tokens_per_s), colour);
      if (marked.emplace(r->asked.workers, true).second)
        svg += text_of("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%lld</text>\n", at, kHeight - kBottom + 16,
                       whole(r->asked.workers));
    }
    const double row = kTop + 14 * static_cast<double>(number);
    svg += text_of("<path d=\"M%.1f %.1fh16\" stroke=\"%s\" stroke-width=\"2\"/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                   kWidth - kRight + 16, row, colour, kWidth - kRight + 38, row + 4, name.c_str());
    ++number;
  }
  return svg + "</svg>\n";
}

}  // namespace ferry
