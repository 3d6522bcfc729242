#include "runtime/options/bench_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "runtime/options/engine_options.h"
#include "runtime/options/option_checks.h"
#include "runtime/options/option_kinds.h"

namespace ferry {

void add_bench_options(CLI::App& app, BenchOptions& o) {
  add_list(app, "-p", o.prompt_lengths, 1, 1 << 20, "prompt lengths for prefill, such as 512,2048; default 512");
  add_list(app, "-b", o.batches, 1, EngineOptions::kMaxSeqs, "sequences that decode at once, such as 1,4,16; default 1");
  app.add_option("-n", o.decode_tokens, "tokens to decode per sequence; default 64")->check(integer_in(1, 1 << 20));
  app.add_option("-r", o.repetitions, "repetitions; default 5")->check(integer_in(1, 1000));
  app.add_flag("--json", o.json, "print one JSON object");
}

void make_room(const BenchOptions& o, EngineOptions& e) {
  // Some tokens stand before the decode steps.
  const int64_t longest = std::max(*std::max_element(o.prompt_lengths.begin(), o.prompt_lengths.end()),
                                   BenchOptions::kDecodePrompt + o.decode_tokens);
  if (!e.max_context) e.max_context = longest + 1;
  e.max_seqs = std::max(e.max_seqs, *std::max_element(o.batches.begin(), o.batches.end()));
  e.token_budget = std::max(e.token_budget, e.max_seqs + std::min<int64_t>(e.prefill_chunk, 64));
}

}  // namespace ferry
