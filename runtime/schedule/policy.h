#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace ferry {

/// Who is served first where not all can be at once (policies.md).
enum class SchedulingPolicy : uint8_t {
  kFcfs,      // who came first
  kPriority,  // the lower Request::priority, then who came first; takes memory from those behind it
  kFair,      // accounts have equal shares of the slots, the memory and the rows of prompts
};
/// "fcfs", "priority" or "fair": the first two are vLLM's words.
const char* scheduling_policy_name(SchedulingPolicy policy);

/// Who goes first among those between whom the policy knows no difference.
enum class QueueOrder : uint8_t {
  kArrival,
  kShortest,  // few tokens that are not cached count as an earlier arrival
};

/// How steps are shared out, fixed at start.
struct PolicyOptions {
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  bool is_given = false;  // the operator chose `policy`; else a server with several API keys takes kFair
  QueueOrder order = QueueOrder::kArrival;
  int64_t aging_tokens_per_s = 1000;  // of kShortest: so many tokens to compute are worth a second of waiting; >= 1
  double decode_slo_s = 0;            // what a step in which a sequence decodes is to take at most; 0: no bound
};

/// Returns the policy of a server with `num_keys` API keys: kFair with several of them, unless the operator chose one.
SchedulingPolicy policy_for(const PolicyOptions& options, std::size_t num_keys);

/// A request's place among others: the lesser goes first. It does not grow while the request waits or runs, and only finitely
/// many that come later can be less, but for those of a better priority: so nobody is overtaken for ever.
///
/// Under kFair the priority of a running request is the number of its account's requests that were admitted before it and still
/// run. So the second request of an account goes before the third of every other, and shares of memory even out.
struct Seniority {
  int64_t priority = 0;    // under kPriority that of the request, under kFair see above, else 0
  int64_t arrival_ns = 0;  // of kShortest: of the arrival, and what its tokens add
  int64_t number = 0;      // in order of arrival, or under kFair of admission

  // clang-tidy 14 takes the 0 of comparisons that the compiler writes for a pointer.
  auto operator<=>(const Seniority&) const = default;  // NOLINT(modernize-use-nullptr)
};

}  // namespace ferry
