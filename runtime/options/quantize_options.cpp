#include "runtime/options/quantize_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/engine_options.h"
#include "runtime/options/option_checks.h"

namespace ferry {

void add_quantize_options(CLI::App& app, QuantizeOptions& o, EngineOptions& engine) {
  add_model_options(app, engine);
  add_quantization(app, engine,
                   "native (the codes that the checkpoint holds), w8a8, w4a8 or w4a8:GROUP, or by part (experts, shared, "
                   "mixers, lm_head) as in experts=w4a8,lm_head=w8a8")
      ->required();
  app.add_option("--out", o.out, "folder to write, new or empty")->required();
}

std::string check_together(const QuantizeOptions&, const EngineOptions& engine) {
  if (engine.quantization->any()) return "";
  return "--quantize: " + complaint("none", "native, w8a8, w4a8, w4a8:GROUP or by part; one part at least");
}

}  // namespace ferry
