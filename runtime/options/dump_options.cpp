#include "runtime/options/dump_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/option_kinds.h"

namespace ferry {

void add_dump_options(CLI::App& app, DumpOptions& o) {
  add_token_ids(app, "--token-ids", o.token_ids, "token ids such as 1,2,3")->required();
  app.add_option("--out", o.out, "safetensors file to write")->required();
  app.add_flag("--taps", o.taps, "also hidden.K, layers.N.topk_ids, layers.N.topk_weights, recurrent_state.N");
}

}  // namespace ferry
