#include "runtime/options/batch_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/option_checks.h"

namespace ferry {

void add_batch_options(CLI::App& app, BatchOptions& options) {
  const auto is_path = [](const std::string& path) { return path.empty() ? complaint(path, "a file") : std::string(); };
  app.add_option_function<std::string>(
         "input", [&options](const std::string& path) { options.input = path; },
         "file of requests in OpenAI's batch form, one JSON object a line: custom_id, method, url, body")
      ->check(is_path)
      ->required();
  app.add_option_function<std::string>(
         "output", [&options](const std::string& path) { options.output = path; },
         "file for the answers, a line each, as they come; lines of it that answer some already are left out of the work")
      ->check(is_path)
      ->required();
  app.add_option("--concurrency", options.concurrency,
                 "lines that are worked on at once, which bounds memory; default twice --max-seqs")
      ->check(integer_in(1, 1 << 16));
  add_api_options(app, options.api);
  add_step_archive_options(app, options.archive, "folder for the steps that --trace-sample keeps");
}

std::string check_together(const BatchOptions& options, const EngineOptions& engine) {
  if (options.archive.trace_dir && options.archive.trace_sample == 0)
    return "--trace-dir without --trace-sample; allowed: with the steps that are to be kept there";
  return check_together(options.archive, engine);
}

}  // namespace ferry
