#include "tests/sim/workload.h"

#include <algorithm>
#include <span>

#include "comm/faulty/seeded_random.h"
#include "runtime/cluster.h"
#include "tests/support/one_choice_each.h"
#include "tests/support/tiny_model.h"

namespace ferry::sim {
namespace {

constexpr int64_t kVocab = 37;

/// As small as every part of a model can be, so that a run takes milliseconds.
test::TinyModelOptions model_options() {
  return {.layers = {"linear_attention", "full_attention"},
          .vocab = kVocab,
          .hidden = 32,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 24,
          .num_k_heads = 1,
          .num_v_heads = 2,
          .k_dim = 8,
          .v_dim = 8,
          .num_experts = 7,
          .top_k = 3,
          .expert_dim = 8,
          .shared_dim = 8,
          .max_context = 64};
}

TokenId token_of(const std::byte* logits, int64_t bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (int64_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<uint64_t>(logits[i])) * 0x100000001b3U;
  return static_cast<TokenId>((hash >> 16U) % kVocab);
}

}  // namespace

Workload::Workload(std::filesystem::path dir) : dir_(std::move(dir)) {
  test::TinyModel(model_options()).write(dir_);
  SeededRandom random(1);
  for (int i = 0; i < kNumPrompts; ++i) {
    std::vector<TokenId>& prompt = prompts_.emplace_back(static_cast<std::size_t>(1 + 3 * i));  // up to three pieces
    for (TokenId& token : prompt) token = static_cast<TokenId>(random.below(kVocab));
  }
  exact_ = answer_in_one_process();
}

EngineOptions Workload::options(const SimPlan& plan) const {
  EngineOptions options;
  options.model = dir_;
  options.dtype = DType::kF32;  // rounds least: another order of a sum shows
  options.threads = 1;
  options.combine = plan.combine;
  options.profile = "off";
  options.clock_skew.rank = 1;  // so that clocks are compared
  options.memory_bytes = int64_t{1} << 18;
  options.max_seqs = 3;
  options.max_waiting = 16;
  options.token_budget = 24;
  options.prefill_chunk = 8;
  options.micro_batch = plan.uses_micro_batches ? 1 : 0;
  options.max_context = 40;
  options.peer_timeout_s = std::chrono::duration<double>(plan.peer_timeout).count();
  if (plan.links) {
    options.placement.redundancy = plan.links->redundancy;
    options.placement.rebalance_steps = plan.links->rebalance_steps;
  }
  return options;
}

EngineOptions Workload::newcomer_options() const {
  EngineOptions options;
  options.model = dir_;
  options.threads = 1;
  options.profile = "off";
  return options;
}

Request Workload::request(int prompt_idx, int32_t max_tokens) const {
  Request request;
  request.prompt = prompts_[static_cast<std::size_t>(prompt_idx)];
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

std::vector<std::vector<TokenId>> Workload::answer_in_one_process() const {
  const EngineOptions options = this->options({});
  Cluster alone(options);
  Engine engine(options, alone);
  Scheduler scheduler(engine.scheduler_options());
  std::vector<std::vector<TokenId>> answers;
  for (int i = 0; i < kNumPrompts; ++i) {
    scheduler.add(request(i, kMaxTokens), {});
    while (run_step(engine, scheduler, {})) {
    }
    const std::unique_ptr<Sequence> done = std::move(scheduler.take_finished().front());
    answers.emplace_back(done->tokens.end() - kMaxTokens, done->tokens.end());
  }
  return answers;
}

void Workload::learn_answers(const std::function<std::vector<std::vector<TokenId>>(const SimPlan&)>& learn) {
  for (int workers = 1; workers <= kMaxWorkers; ++workers) fast_[workers] = learn(calm_plan(CombineMode::kFast, workers));
}

const std::vector<TokenId>* Workload::answer(const SimPlan& plan, int prompt_idx) const {
  const bool is_exact = plan.combine == CombineMode::kExact;
  if (!is_exact && (plan.links || !fast_.contains(plan.num_workers))) return nullptr;
  return &(is_exact ? exact_ : fast_.at(plan.num_workers))[static_cast<std::size_t>(prompt_idx)];
}

bool run_step(Engine& engine, Scheduler& scheduler, Scheduler::TimePoint now) {
  const StepPlan& plan = scheduler.plan(now);
  if (plan.num_rows == 0) return false;
  const ConstMatrixView logits = engine.compute(plan).all_values();
  std::vector<TokenId> tokens;
  for (int64_t row = 0; row < logits.rows; ++row)
    tokens.push_back(token_of(logits.row_bytes(row), logits.cols * dtype_bytes(logits.dtype)));
  scheduler.commit(plan, test::OneChoiceEach(tokens), now);
  return true;
}

}  // namespace ferry::sim
