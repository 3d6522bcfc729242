#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "moe/combine_mode.h"
#include "runtime/engine.h"
#include "runtime/schedule/scheduler.h"
#include "tests/sim/sim_plan.h"

namespace ferry::sim {

/// The checkpoint that all runs serve, the prompts they are asked, and what the right answers are.
class Workload {
 public:
  static constexpr int kNumPrompts = 8;
  static constexpr int32_t kMaxTokens = 6;

  /// Writes a tiny random checkpoint into `dir`.
  explicit Workload(std::filesystem::path dir);

  EngineOptions options(const SimPlan& plan) const;
  /// What `ferry worker` is started with: all else it is told when it joins.
  EngineOptions newcomer_options() const;
  Request request(int prompt_idx, int32_t max_tokens) const;

  /// The kMaxTokens tokens that follow each prompt in one process. With a fast combine rounding depends on the number of
  /// workers: there, what a run without faults gives.
  /// Null before learn_answers(), and over links, where it depends on who answers, too.
  const std::vector<TokenId>* answer(const SimPlan& plan, int prompt_idx) const;
  /// `learn` plays a plan without faults and returns all prompts' tokens.
  void learn_answers(const std::function<std::vector<std::vector<TokenId>>(const SimPlan&)>& learn);

 private:
  std::vector<std::vector<TokenId>> answer_in_one_process() const;

  std::filesystem::path dir_;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<std::vector<TokenId>> exact_;                // [kNumPrompts][kMaxTokens]
  std::map<int, std::vector<std::vector<TokenId>>> fast_;  // by number of workers
};

/// Plans a step, computes it and commits it. Each token is a hash of its logits: one wrong bit in them changes it, and with it
/// all that follow. False if there was nothing to compute.
bool run_step(Engine& engine, Scheduler& scheduler, Scheduler::TimePoint now);

}  // namespace ferry::sim
