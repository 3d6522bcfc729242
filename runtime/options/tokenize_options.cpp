#include "runtime/options/tokenize_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/engine_options.h"
#include "runtime/options/option_kinds.h"

namespace ferry {

void add_tokenize_options(CLI::App& app, TokenizeOptions& o, EngineOptions& engine) {
  add_model_folder(app, engine);
  app.add_option_function<std::string>(
      "--text", [&o](const std::string& text) { o.text = text; }, "text to cut into tokens; default: standard input");
  app.add_option("--file", o.file, "file with such a text");
  add_token_ids(app, "--ids", o.ids, "token ids such as 1,2,3 to make text of");
  app.add_flag("--bare", o.bare, "without the tokens that the checkpoint puts before or after a prompt");
  app.add_flag("--json", o.json, "print one JSON object");
}

std::string check_together(const TokenizeOptions& o) {
  const int num_inputs = o.text.has_value() + !o.file.empty() + !o.ids.empty();
  if (num_inputs > 1) return "at most one of --text, --file, --ids is allowed; " + std::to_string(num_inputs) + " were given";
  return o.bare && !o.ids.empty() ? "--bare is for text, --ids is given" : "";
}

}  // namespace ferry
