#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moe/placement/spread.h"
#include "runtime/plan/curve.h"

// What a plan is made of: plain values. How times follow from them is in step_model.h.

namespace ferry {

/// Of the model and how its weights are held; bytes are of packed weights.
struct PlanModel {
  std::string shape;  // of a layer, as text: costs hold for models of the same (plan_shape())
  int64_t num_layers = 0;
  int64_t num_expert_layers = 0;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  double coordinator_bytes = 0;  // all weights but the routed experts'
  double expert_bytes = 0;       // of one expert of one layer
  double bytes_per_token = 0;    // of the coordinator's cache
  double bytes_per_sequence = 0;
  double row_out_bytes = 0;  // a token's row to a worker
  double row_in_bytes = 0;   // an expert's row back
};

/// What the parts of a step take a rank that has all of its host's cores, seconds. The coordinator's are of all layers.
struct RankCosts {
  Curve own_decode, own_prefill;        // norms, mixers and router, over rows; of sequences with few tokens behind them
  Curve shared_decode, shared_prefill;  // the shared expert, beside the workers
  Curve head;                           // behind the last layer, over rows with logits
  double key_decode = 0;                // of each row and each token that it looks back on
  double key_prefill = 0;
  double expert_call = 0;  // of one layer's experts, whatever they are given
  Curve expert;            // of one expert, over its rows
};

/// One or more machines of a kind.
struct PlanHost {
  std::string name;
  int64_t count = 1;
  int64_t cores = 1;
  double ram_bytes = 0;
  double read_bytes_per_s = 0;  // of memory, all cores together: what ranks of the host share
  double flops_per_s = 0;       // multiply-adds of values, two each
  double code_flops_per_s = 0;  // of codes
  double link_s = 0;            // a worker's round trip with little to say, there and back, waking up included
  double message_s = 0;         // what each further worker adds to that on the coordinator
  double link_bytes_per_s = 0;  // through which all rows go
  bool is_measured = false;     // costs are this model's, measured; else they follow from the roofs above
  RankCosts alone;              // of a rank that has the host to itself
  RankCosts beside;             // of one beside others, whose threads sleep when they have nothing to do
};

/// Copies of experts beyond the first.
struct PlanCopies {
  std::string name = "0";  // "0", "12.5%", "2x"
  Redundancy::Kind kind = Redundancy::Kind::kExtraSlots;
  double extra_share = 0;  // of the experts
};

/// What is asked of one configuration.
struct PlanCase {
  int64_t workers = 1;  // 0: one process
  int64_t coordinators = 1;
  PlanCopies copies;
  bool is_spread = false;  // without copies, too; else consecutive slices
  int64_t batch = 1;       // sequences that decode at once, of all coordinators together
  int64_t context = 64;    // tokens that each has
  int64_t prompt = 512;    // tokens of a prompt
  int64_t prefill_chunk = 2048;
};

/// Where the time of a step goes, seconds. They add up to the step.
struct StepTimes {
  double coordinator = 0;
  double experts = 0;  // were the work even
  double transport = 0;
  double imbalance = 0;  // what the fullest host takes longer

  double sum() const { return coordinator + experts + transport + imbalance; }
};

struct PlanResult {
  PlanCase asked;
  StepTimes decode, prefill;  // of a step; of a prompt
  double decode_tokens_per_s = 0, prefill_tokens_per_s = 0;
  double coordinator_bytes = 0, worker_bytes = 0;  // weights; of the fullest worker
  double cache_bytes = 0;                          // of the batch
  int64_t most_sequences = 0;                      // that the coordinator has room for; 0 if not even its weights fit
  bool fits = true;                                // weights and cache in the hosts' memory, as far as that is known
  std::string bound;                               // "coordinator", "experts", "transport", "imbalance"; of decode
  double after_death_tokens_per_s = 0;             // decode with one worker less; 0 if nobody is left
  double lost_share = 0;                           // of the experts, which have no copy elsewhere then
  double reload_s = 0;                             // until the survivors have read those
};

}  // namespace ferry
