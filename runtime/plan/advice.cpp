#include "runtime/plan/advice.h"

#include <array>
#include <cstdio>

namespace ferry {
namespace {

void advise_balance(StepModel& model, PlanAdvice& advice) {
  PlanCase c = advice.best->asked;
  if (c.workers < 2) return;
  c.copies = {};
  c.is_spread = false;
  const double plain = model.plan(c).decode_tokens_per_s;
  c.is_spread = true;
  advice.balance = "--spread";
  advice.balance_gain = model.plan(c).decode_tokens_per_s / plain - 1;
  constexpr double kFew = 0.125;
  for (const PlanCopies& copies :
       {PlanCopies{.name = "12.5%", .extra_share = kFew}, PlanCopies{.name = "2x", .kind = Redundancy::Kind::kTwice}}) {
    c.copies = copies;
    const PlanResult result = model.plan(c);
    const double gain = result.decode_tokens_per_s / plain - 1;
    // More copies have to bring more than the fewer that take less memory.
    if (!result.fits || gain < advice.balance_gain + kPlanGain) continue;
    advice.balance = "--redundancy " + copies.name;
    advice.balance_gain = gain;
  }
}

void advise_second(StepModel& model, PlanAdvice& advice) {
  PlanCase c = advice.best->asked;
  if (c.workers == 0 || c.coordinators + 1 > c.batch) return;
  ++c.coordinators;
  if (c.coordinators + c.workers > model.num_hosts() && c.workers > 1 && model.num_hosts() > 2) {
    --c.workers;
    advice.takes_worker = true;
  }
  const PlanResult second = model.plan(c);
  if (!second.fits) return;
  advice.has_second = true;
  advice.second = c;
  advice.second_gain = second.decode_tokens_per_s / advice.best->decode_tokens_per_s - 1;
}

std::string answer(double gain) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s (%+.0f %%)", gain >= kPlanGain ? "yes" : "no", 100 * gain);
  return text.data();
}

}  // namespace

std::vector<PlanAdvice> advise(StepModel& model, std::span<const PlanResult> results) {
  std::vector<PlanAdvice> all;
  for (const std::size_t index : best_of(results)) {
    PlanAdvice advice{.best = &results[index]};
    advise_balance(model, advice);
    advise_second(model, advice);
    all.push_back(std::move(advice));
  }
  return all;
}

std::string advice_text(const PlanAdvice& advice) {
  const PlanCase& c = advice.best->asked;
  std::string text =
      "batch " + std::to_string(c.batch) + (c.depth > 0 ? " @ " + std::to_string(c.depth) : "") + ": best " +
      (c.workers == 0 ? "one process"
                      : std::to_string(c.coordinators) + " coordinator" + (c.coordinators > 1 ? "s" : "") + " : " +
                            std::to_string(c.workers) + " worker" + (c.workers > 1 ? "s" : "") + ", copies " + c.copies.name);
  if (advice.balance.empty()) {
    text += "; balancing (EPLB): no, nothing to balance";
  } else {
    text += "; balancing (EPLB): " + answer(advice.balance_gain) + " by " + advice.balance;
  }
  text += "; a coordinator more: ";
  if (!advice.has_second) return text + (c.workers == 0 ? "no, one process has all" : "no, nothing left for it") + "\n";
  text += answer(advice.second_gain);
  return text + (advice.takes_worker ? " in the place of a worker\n" : "\n");
}

}  // namespace ferry
