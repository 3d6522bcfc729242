#include "runtime/options/scheduling_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/option_checks.h"
#include "runtime/options/option_kinds.h"
#include "runtime/schedule/policy.h"

namespace ferry {

void add_scheduling_options(CLI::App& app, PolicyOptions& options) {
  const char* group = "Who is served first";
  using enum SchedulingPolicy;
  add_choice<SchedulingPolicy>(
      app, "--policy,--scheduling-policy", {{"fcfs", kFcfs}, {"priority", kPriority}, {"fair", kFair}},
      [&options](SchedulingPolicy policy) {
        options.policy = policy;
        options.is_given = true;
      },
      "fcfs (in order of arrival), priority (the lower `priority` of requests, which takes memory from worse ones) or fair "
      "(equal shares of slots and memory for API keys, or for `user`s where there are none); default fair with several API "
      "keys, else fcfs")
      ->group(group);
  add_choice<QueueOrder>(
      app, "--queue-order", {{"arrival", QueueOrder::kArrival}, {"shortest", QueueOrder::kShortest}},
      [&options](QueueOrder order) { options.order = order; },
      "of requests between whom the policy knows no difference: arrival, or shortest (few tokens to compute count as an "
      "earlier "
      "arrival, so that long ones are overtaken, but not for ever); default arrival")
      ->group(group);
  app.add_option("--aging-rate", options.aging_tokens_per_s,
                 "tokens to compute that weigh as much as a second of waiting, for --queue-order shortest; default 1000")
      ->check(integer_in(1, 1 << 30))
      ->group(group);
  app.add_option_function<double>(
         "--decode-slo-ms", [&options](double ms) { options.decode_slo_s = ms * 1e-3; },
         "milliseconds that a step is to take at most while texts go on, which is the time between two tokens of a stream: "
         "prompts "
         "get as many rows beside them as fit, and at least a piece; default: no bound")
      ->check(number_in(0.1, 3.6e6, "0.1 to 3600000 milliseconds"))
      ->group(group);
}

}  // namespace ferry
