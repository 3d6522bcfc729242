#pragma once

#include <vector>

#include "runtime/plan/step_model.h"

// A plan whose times are worked out by hand: one layer of four experts, two a token, of which every row takes the same two.

namespace ferry {

/// Decode steps of one row that takes `a` and `b`, and a prompt of 512 such rows.
inline RoutingTrace always(uint16_t a, uint16_t b) {
  RoutingTrace trace{.shape = {.model = "m", .num_experts = 4, .top_k = 2, .layers = {0}}};
  trace.steps = {{.id = 0, .phase = RoutingPhase::kDecode, .num_rows = 1, .first = 0},
                 {.id = 1, .phase = RoutingPhase::kPrefill, .num_rows = 512, .first = 2}};
  trace.ids = {a, b};
  for (int i = 0; i < 512; ++i) trace.ids.insert(trace.ids.end(), {a, b});
  return trace;
}

inline PlanModel small_model() {
  return {.shape = "s",
          .num_layers = 1,
          .num_expert_layers = 1,
          .num_experts = 4,
          .top_k = 2,
          .coordinator_bytes = 100,
          .expert_bytes = 10,
          .bytes_per_token = 1,
          .bytes_per_sequence = 6,
          .row_out_bytes = 3,
          .row_in_bytes = 5};
}

/// 2 s of own work, 1 s of the shared expert, 0.5 s of the head; an expert takes 4 s and half a second a row, a call 0.25 s.
inline PlanHost small_host(int64_t count) {
  const RankCosts costs{.own_decode = {{{1, 2}}},
                        .own_prefill = {{{1, 2}}},
                        .shared_decode = {{{1, 1}}},
                        .shared_prefill = {{{1, 1}}},
                        .head = {{{1, 0.5}}},
                        .keys_decode = {{{1, 0.125}, {3, 0.25}}},
                        .key_prefill = 0,
                        .expert_call = 0.25,
                        .expert = {{{1, 4.5}, {512, 260}}},
                        .exchange_decode = {},
                        .exchange_prefill = {}};
  return {.name = "h",
          .count = count,
          .cores = 2,
          .ram_bytes = 200,
          .read_bytes_per_s = 5,
          .load_bytes_per_s = 1,
          .link_s = 0.75,
          .message_s = 0.25,
          .link_bytes_per_s = 1024,
          .handling = {},
          .exchange = {},
          .alone = costs,
          .together = {}};
}

/// Of a layer's messages: rows out and back, headers for each worker, counts of the experts and a word a row.
inline double small_bytes(double workers, double rows_out, double rows_back) {
  return rows_out * 3 + rows_back * 5 + workers * 192 + 4 * 4 + 4 * rows_back;
}
/// With a round trip and a message for each further worker.
inline double small_transport(double workers, double rows_out, double rows_back) {
  return 0.75 + 0.25 * (workers - 1) + small_bytes(workers, rows_out, rows_back) / 1024;
}

inline PlanResult plan_of(const PlanHost& host, const RoutingTrace& trace, const PlanCase& asked) {
  const PlanModel model = small_model();
  const RoutingRows rows(trace);
  return StepModel(model, {&host, 1}, rows).plan(asked);
}

inline PlanResult plan_of(int64_t num_hosts, const RoutingTrace& trace, const PlanCase& asked) {
  return plan_of(small_host(num_hosts), trace, asked);
}

}  // namespace ferry
