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

/// What the parts of a step take a rank that has its host's cores, seconds. The coordinator's are of all layers.
struct RankCosts {
  Curve own_decode, own_prefill;            // norms, mixers and router, over rows; of sequences with few tokens behind them
  Curve shared_decode, shared_prefill;      // the shared expert: of ranks that share a host, what of it is not hidden
  Curve head;                               // behind the last layer, over rows with logits
  Curve keys_decode;                        // of each token that all rows look back on, over rows
  double key_prefill = 0;                   // of each row and each token that it looks back on
  double expert_call = 0;                   // of one layer's experts, whatever they are given
  Curve expert;                             // of one expert, over its rows
  Curve exchange_decode, exchange_prefill;  // of one layer, over its bytes both ways: what having ranks adds beside all that

  /// Pieces of a prompt but the last have no logits.
  double of_head(double logits) const { return logits > 0 ? head.at(logits) : 0; }
  /// What `keys` tokens behind each of so many rows add to own work.
  double of_keys(bool is_decode, double rows, double keys) const {
    return keys * (is_decode ? keys_decode.at(rows) : rows * key_prefill);
  }
};

/// Costs of a coordinator and some workers that share one host, the workers together: what they take is one after the other's.
struct SharedCosts {
  int64_t workers = 1;
  RankCosts costs;
};

/// Bytes that go to some ranks of the same host and others that come back, over the sockets between processes of a host.
struct HostExchange {
  int64_t workers = 1;
  Curve curve;  // over bytes both ways, of all of them together
};

/// What a host may carry.
enum class HostRole { kAny, kCoordinators, kWorkers };

/// One or more machines of a kind.
struct PlanHost {
  std::string name;
  int64_t count = 1;
  HostRole role = HostRole::kAny;
  int64_t cores = 1;
  int64_t worker_threads = 0;  // of each of several workers that share it; 0: what CorePolicy gives them
  double ram_bytes = 0;
  double read_bytes_per_s = 0;         // of memory, all cores together: what ranks of the host share
  double load_bytes_per_s = 0;         // of experts, from the checkpoint until they can be multiplied with
  double flops_per_s = 0;              // multiply-adds of values, two each
  double code_flops_per_s = 0;         // of codes
  double link_s = 0;                   // a worker's round trip with little to say, there and back, waking up included
  double message_s = 0;                // what each further worker adds to that on the coordinator
  double link_bytes_per_s = 0;         // through which all rows go to other hosts and back
  Curve handling;                      // over bytes both ways: what sockets of the network take beside the network
  std::vector<HostExchange> exchange;  // with ranks of this host, by number of workers
  bool is_measured = false;            // costs are this model's, measured; else they follow from the roofs above
  RankCosts alone;                     // of a rank that has the host to itself
  std::vector<SharedCosts> together;   // of ranks that share it, by number of workers; may be empty
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
  bool is_spread = false;   // without copies, too; else consecutive slices
  bool knows_loads = true;  // copies and spread are by what experts are asked for; else as if all were asked for alike
  int64_t batch = 1;        // sequences that decode at once, of all coordinators together
  int64_t depth = 0;        // tokens behind which prompts begin and sequences decode
  int64_t context = 64;     // tokens that each sequence that decodes has behind those
  int64_t prompt = 512;     // tokens of a prompt
  int64_t prefill_chunk = 2048;
  const std::vector<LayerPlacement>* given = nullptr;  // where experts lie, whatever `copies` and `is_spread` say; outlives it
  bool adds_on_workers = false;                        // --combine fast: a worker sends one row a token back
  int64_t micro_batch_rows = 256;                      // of half a step from which it is halved, workers apart; 0: never
};

/// Where the time of a step goes, seconds. They add up to the step.
struct StepTimes {
  double coordinator = 0;
  double experts = 0;  // were the work even
  double transport = 0;
  double imbalance = 0;  // what the fullest host takes longer
  double queue = 0;      // what other coordinators make one wait

  double sum() const { return coordinator + experts + transport + imbalance + queue; }
};

/// Rows of several coordinators that workers compute together, of one layer and at one time.
struct MergeEstimate {
  double share = 0;              // of the answers, as the queue in front of the workers has it
  double none_tokens_per_s = 0;  // decode, were none merged
  double all_tokens_per_s = 0;   // and were all
};

/// What becomes of decoding when the fullest worker dies.
struct DeathEstimate {
  double lost_share = 0;             // of the experts: those that nobody else holds
  double first_step_s = 0;           // the step behind it
  double degraded_tokens_per_s = 0;  // on average until the others hold what was lost, or, if nobody is left, for good
  double degraded_s = 0;             // how long that takes; 0 if nobody is left to take anything over
  double adopted_tokens_per_s = 0;   // from then on; 0 if nobody is left
};

struct PlanResult {
  PlanCase asked;
  StepTimes decode, prefill;  // of a step; of a prompt
  double decode_tokens_per_s = 0, prefill_tokens_per_s = 0;
  double coordinator_bytes = 0, worker_bytes = 0;   // weights; of the fullest worker
  double cache_bytes = 0;                           // of a coordinator's share of the batch
  int64_t most_sequences = 0;                       // that a coordinator has room for; 0 if not even its weights fit
  bool fits = true;                                 // weights and cache in the hosts' memory, as far as that is known
  std::string bound;                                // "coordinator", "experts", "transport", "imbalance", "queue"; of decode
  double worker_use = 0;                            // share of a decode step in which the fullest host's workers are busy
  int64_t coordinator_hosts = 1, worker_hosts = 0;  // ranks of both may share one
  MergeEstimate merge;                              // of several coordinators
  DeathEstimate death;                              // where there are workers
};

}  // namespace ferry
