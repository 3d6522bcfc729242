#include "runtime/options/bench_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "runtime/options/engine_options.h"
#include "runtime/options/option_checks.h"
#include "runtime/options/option_kinds.h"

namespace ferry {

void add_bench_options(CLI::App& app, BenchOptions& o) {
  add_list(app, "-p", o.prompt_lengths, 1, 1 << 20, "prompt lengths for prefill, such as 512,2048; default 512");
  add_list(app, "-b", o.batches, 1, EngineOptions::kMaxSeqs,
           "sequences that decode at once, such as 1,4,16; default 1, and with --speculate 1,4,16,64 as far as they fit");
  add_list(app, "-d", o.depths, 0, 1 << 20,
           "tokens of context, such as 0,8192,32768, behind which all is measured: computed once, each repetition goes back to "
           "its end; default 0");
  app.add_option("-n", o.decode_tokens, "tokens to decode per sequence; default 64")->check(integer_in(1, 1 << 20));
  app.add_option("-r", o.repetitions, "repetitions; default 5")->check(integer_in(1, 1000));
  app.add_option("--recording-cost", o.recording_pairs,
                 "measure what a capture of every operator (with --profile 2 of each thread's share, too) costs each row: so "
                 "many pairs of runs with and without one, in "
                 "turn; default 0: do not")
      ->check(integer_in(0, 1000));
  app.add_option("--prompt-file", o.prompt_file,
                 "text whose pieces --speculate goes on from; default: openings of 64 texts that Ferry knows");
  app.add_option(
      "--routing", o.routing,
      "routing that a capture recorded (--trace-routing), or its folder: takes the place of what the routers choose, "
      "each slot with the weight of the router's own choice");
  app.add_flag("--peers", o.peers, "say with which commands llama.cpp and vLLM measure the same");
  app.add_flag("--json", o.json, "print one JSON object");
}

int64_t drafted_tokens(const BenchOptions& o) {
  return BenchOptions::kDecodePrompt + 2 * o.decode_tokens + Speculation::kMaxDrafts + 1;
}

CacheNeed cache_need_of(const BenchOptions& o) {
  const int64_t depth = *std::ranges::max_element(o.depths);
  // Some tokens stand before the decode steps.
  const int64_t decoded = depth + BenchOptions::kDecodePrompt + o.decode_tokens;
  return {.num_sequences = o.batches.empty() ? 1 : *std::ranges::max_element(o.batches),
          .first_tokens = std::max(depth + *std::ranges::max_element(o.prompt_lengths), decoded) + 1,
          .further_tokens = decoded + 1,
          .memory_is_given = false};
}

std::string check_together(const BenchOptions& o, const EngineOptions& e) {
  const bool has_context = *std::ranges::max_element(o.depths) > 0;
  if (has_context && e.speculation != Speculation{})
    return "-d: not with --speculate, which is measured on texts of its own; allowed with it: 0";
  if (o.depths.size() > 1 && !e.trace.empty())
    return "-d: " + std::to_string(o.depths.size()) +
           " of them with --trace, whose reports tell sections apart by phase and size; allowed: one";
  if (o.recording_pairs > 0 && !e.trace.empty())
    return "--recording-cost: not with --trace, whose capture runs all the time; allowed with it: 0";
  if (o.routing.empty()) return "";
  if (e.speculation != Speculation{}) return "--routing: not with --speculate, whose drafts depend on what the model says";
  if (e.trace_routing) return "--routing: not with --trace-routing, which would record the same again";
  return "";
}

void make_room(const BenchOptions& o, EngineOptions& e) {
  const bool is_drafting = e.speculation != Speculation{};
  CacheNeed need = cache_need_of(o);
  need.memory_is_given = e.cache_need.memory_is_given;
  if (is_drafting) need.first_tokens = std::max(need.first_tokens, drafted_tokens(o) + 1);
  if (is_drafting) need.further_tokens = std::max(need.further_tokens, drafted_tokens(o) + 1);
  e.cache_need = need;
  for (const int64_t batch : o.batches) e.max_seqs = std::max(e.max_seqs, batch);
  if (o.batches.empty() && is_drafting)
    e.max_seqs = std::max(e.max_seqs, *std::ranges::max_element(BenchOptions::kDraftBatches));
  e.token_budget = std::max(e.token_budget, e.max_seqs + std::min<int64_t>(e.prefill_chunk, 64));
}

}  // namespace ferry
