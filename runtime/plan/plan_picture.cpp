#include "runtime/plan/plan_picture.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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
  return text_of("%3.0f %3.0f %3.0f %3.0f %3.0f", t.coordinator / sum, t.experts / sum, t.transport / sum, t.imbalance / sum,
                 t.queue / sum);
}

ordered_json split_json(const StepTimes& t) {
  return {{"coordinator_s", t.coordinator}, {"experts_s", t.experts}, {"transport_s", t.transport},
          {"imbalance_s", t.imbalance},     {"queue_s", t.queue},     {"sum_s", t.sum()}};
}

/// "16", "16 @ 8192": as rows of ferry bench are called.
std::string batch_name(const PlanCase& c) {
  return std::to_string(c.batch) + (c.depth > 0 ? " @ " + std::to_string(c.depth) : "");
}

std::string line_name(const PlanCase& c) {
  std::string name = "batch " + batch_name(c) + ", copies " + c.copies.name;
  if (c.coordinators > 1) name += ", " + std::to_string(c.coordinators) + " coordinators";
  return name;
}

std::string death_text(const PlanResult& r) {
  const DeathEstimate& d = r.death;
  if (r.asked.workers == 0) return "";
  const std::string first = text_of("   %8.1f %9.1f", 1e3 * d.first_step_s, d.degraded_tokens_per_s);
  if (r.asked.workers == 1) return first + "  until one joins";
  return first + text_of(" %7.1f %9.1f", d.degraded_s, d.adopted_tokens_per_s);
}

std::string merge_text(const PlanResult& r) {
  const PlanCase& c = r.asked;
  return text_of(
      "%lld coordinators, %lld workers, copies %s, batch %s: %.1f %% of the answers merged; %.1f tokens/s if none "
      "is, %.1f if all are\n",
      whole(c.coordinators), whole(c.workers), c.copies.name.c_str(), batch_name(c).c_str(), 100 * r.merge.share,
      r.merge.none_tokens_per_s, r.merge.all_tokens_per_s);
}

/// The best of each depth, batch and number of coordinators above one.
std::vector<const PlanResult*> best_of_several(std::span<const PlanResult> results) {
  std::map<std::array<int64_t, 3>, const PlanResult*> best;
  for (const PlanResult& r : results) {
    if (r.asked.coordinators == 1) continue;
    const PlanResult*& other = best[{r.asked.depth, r.asked.batch, r.asked.coordinators}];
    if (other == nullptr || r.decode_tokens_per_s > other->decode_tokens_per_s) other = &r;
  }
  std::vector<const PlanResult*> all;
  all.reserve(best.size());
  for (const auto& [key, result] : best) all.push_back(result);
  return all;
}

ordered_json death_json(const PlanResult& r) {
  const DeathEstimate& d = r.death;
  if (r.asked.workers == 0) return nullptr;
  const bool is_last = r.asked.workers == 1;  // nobody is left to take its experts over
  return {{"lost_share", d.lost_share},
          {"first_step_s", d.first_step_s},
          {"degraded_tokens_per_s", d.degraded_tokens_per_s},
          {"degraded_s", is_last ? ordered_json() : ordered_json(d.degraded_s)},
          {"adopted_tokens_per_s", is_last ? ordered_json() : ordered_json(d.adopted_tokens_per_s)}};
}

ordered_json merge_json(const PlanResult& r) {
  if (r.asked.coordinators == 1) return nullptr;
  return {{"assumed_share", r.merge.share},
          {"none_tokens_per_s", r.merge.none_tokens_per_s},
          {"all_tokens_per_s", r.merge.all_tokens_per_s}};
}

ordered_json result_json(const PlanResult& r, bool is_best) {
  return {{"workers", r.asked.workers},
          {"coordinators", r.asked.coordinators},
          {"coordinator_hosts", r.coordinator_hosts},
          {"worker_hosts", r.worker_hosts},
          {"redundancy", r.asked.copies.name},
          {"placement", r.asked.is_spread || r.asked.copies.name != "0" ? "spread" : "slices"},
          {"batch", r.asked.batch},
          {"depth", r.asked.depth},
          {"context", r.asked.context},
          {"prompt", r.asked.prompt},
          {"prefill_tokens_per_s", r.prefill_tokens_per_s},
          {"decode_tokens_per_s", r.decode_tokens_per_s},
          {"decode", split_json(r.decode)},
          {"prefill", split_json(r.prefill)},
          {"bound", r.bound},
          {"worker_use", r.worker_use},
          {"merged", merge_json(r)},
          {"coordinator_bytes", r.coordinator_bytes},
          {"worker_bytes", r.worker_bytes},
          {"cache_bytes", r.cache_bytes},
          {"most_sequences", r.most_sequences},
          {"fits", r.fits},
          {"after_death", death_json(r)},
          {"is_best", is_best}};
}

ordered_json advice_json(const PlanAdvice& advice) {
  const PlanCase& c = advice.best->asked;
  ordered_json object{{"batch", c.batch},
                      {"depth", c.depth},
                      {"workers", c.workers},
                      {"coordinators", c.coordinators},
                      {"redundancy", c.copies.name}};
  object["balance"] = advice.balance.empty() ? ordered_json()
                                             : ordered_json{{"is_worth_it", advice.balance_gain >= kPlanGain},
                                                            {"by", advice.balance},
                                                            {"gain", advice.balance_gain}};
  object["second_coordinator"] = !advice.has_second ? ordered_json()
                                                    : ordered_json{{"is_worth_it", advice.second_gain >= kPlanGain},
                                                                   {"coordinators", advice.second.coordinators},
                                                                   {"workers", advice.second.workers},
                                                                   {"gain", advice.second_gain}};
  object["text"] = advice_text(advice).substr(0, advice_text(advice).size() - 1);
  return object;
}

const char* role_text(HostRole role) {
  if (role == HostRole::kAny) return "any";
  return role == HostRole::kCoordinators ? "coordinators" : "workers";
}

/// A configuration's point at (`at`, y(tokens/s)), and what may become of it.
template <class Y>
std::string svg_marks(const PlanResult& r, double at, Y&& y, const char* colour) {
  std::string svg = text_of("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", at, y(r.decode_tokens_per_s), colour);
  if (r.asked.coordinators > 1) {
    svg += text_of("<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\"/>\n", at, y(r.merge.none_tokens_per_s),
                   y(r.merge.all_tokens_per_s), colour);
  }
  if (r.asked.workers > 0) {
    svg += text_of("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"none\" stroke=\"%s\"/>\n", at,
                   y(r.death.degraded_tokens_per_s), colour);
  }
  return svg;
}

}  // namespace

std::string plan_table(std::span<const PlanResult> results, std::span<const PlanAdvice> advice) {
  const std::vector<std::size_t> best = best_of(results);
  std::string text =
      "                                        tokens/s           decode: % of a step                   GB of weights     "
      "sequences   when the fullest worker dies: step ms, tokens/s\n"
      "  workers coord. copies batch  depth   prefill   decode   coord. experts transport uneven queue    coord.  worker   "
      "that fit   "
      "     first  degraded for s   adopted\n";
  bool has_several = false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const PlanResult& r = results[i];
    const PlanCase& c = r.asked;
    const bool is_best = std::ranges::find(best, i) != best.end();
    has_several = has_several || c.coordinators > 1;
    text +=
        text_of("%c %7lld %6lld %6s %5lld %6lld %9.1f %8.1f   ", is_best ? '*' : ' ', whole(c.workers), whole(c.coordinators),
                c.copies.name.c_str(), whole(c.batch), whole(c.depth), r.prefill_tokens_per_s, r.decode_tokens_per_s);
    text += split_text(r.decode) + text_of("  %-11s", r.bound.c_str());
    text += text_of(" %7.2f %7.2f %10lld", r.coordinator_bytes * 1e-9, r.worker_bytes * 1e-9, whole(r.most_sequences));
    text += death_text(r) + (r.fits ? "\n" : "  DOES NOT FIT\n");
  }
  text += "\n";
  for (const PlanAdvice& a : advice) text += advice_text(a);
  if (!has_several) return text;
  text +=
      "\nSeveral coordinators are assumed to go through the layers each by itself: who waits is at the same one as often as "
      "chance has it. The best of each number:\n";
  for (const PlanResult* r : best_of_several(results)) text += merge_text(*r);
  return text;
}

std::string plan_json(const PlanModel& model, std::span<const PlanHost> hosts, std::span<const PlanResult> results,
                      std::span<const PlanAdvice> advice) {
  ordered_json list = ordered_json::array(), machines = ordered_json::array(), advised = ordered_json::array();
  const std::vector<std::size_t> best = best_of(results);
  for (const PlanHost& host : hosts) {
    machines.push_back(
        {{"name", host.name}, {"count", host.count}, {"role", role_text(host.role)}, {"is_measured", host.is_measured}});
  }
  for (std::size_t i = 0; i < results.size(); ++i)
    list.push_back(result_json(results[i], std::ranges::find(best, i) != best.end()));
  for (const PlanAdvice& a : advice) advised.push_back(advice_json(a));
  const ordered_json object{
      {"shape", model.shape}, {"layers", model.num_layers}, {"hosts", machines}, {"configurations", list}, {"advice", advised}};
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string plan_svg(std::span<const PlanResult> results) {
  constexpr double kWidth = 640, kHeight = 400, kLeft = 70, kBottom = 40, kTop = 20, kRight = 230;
  constexpr std::array kColours{"#1b6ca8", "#c8553d", "#588157", "#8d5a97", "#b08900", "#4a4e69"};
  std::map<std::string, std::vector<const PlanResult*>> lines;
  double most = 0, last = 1;
  for (const PlanResult& r : results) {
    lines[line_name(r.asked)].push_back(&r);
    most = std::max({most, r.decode_tokens_per_s, r.merge.none_tokens_per_s, r.merge.all_tokens_per_s});
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
      svg += svg_marks(*r, at, y, colour);
      if (marked.emplace(r->asked.workers, true).second)
        svg += text_of("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%lld</text>\n", at, kHeight - kBottom + 16,
                       whole(r->asked.workers));
    }
    const double row = kTop + 14 * static_cast<double>(number);
    svg += text_of("<path d=\"M%.1f %.1fh16\" stroke=\"%s\" stroke-width=\"2\"/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                   kWidth - kRight + 16, row, colour, kWidth - kRight + 38, row + 4, name.c_str());
    ++number;
  }
  svg += text_of(
      "<text x=\"%.1f\" y=\"%.1f\">bars: none to all merged</text>\n"
      "<text x=\"%.1f\" y=\"%.1f\">rings: after a death, degraded</text>\n",
      kWidth - kRight + 16, kHeight - 22, kWidth - kRight + 16, kHeight - 8);
  return svg + "</svg>\n";
}

}  // namespace ferry
