#include "runtime/options/step_archive_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/engine_options.h"
#include "runtime/options/option_checks.h"

namespace ferry {

void add_step_archive_options(CLI::App& app, StepArchiveOptions& options, const std::string& folder_help) {
  app.add_option_function<std::string>(
      "--trace-dir", [&options](const std::string& folder) { options.trace_dir = folder; }, folder_help);
  app.add_option(
         "--trace-sample", options.trace_sample,
         "keep one step in so many with all that its ranks record of it, and every step that stands out, in archive/ below "
         "--trace-dir, for ferry trace archive; default: none")
      ->check(integer_in(1, 1'000'000'000));
  app.add_option("--trace-sample-bytes", options.trace_sample_bytes,
                 "bytes of the archive of steps, with --trace-sample: old ones are thinned out; default 256MiB")
      ->transform(size_in(int64_t{1} << 20, int64_t{1} << 44, "1MiB to 16TiB"));
}

void add_refused_trace_sample(CLI::App& app, const std::string& why) {
  const auto refuse = [why](const std::string&) { throw CLI::ValidationError("--trace-sample", why); };
  app.add_option_function<std::string>("--trace-sample", refuse, why)->group("");
}

std::string check_together(const StepArchiveOptions& options, const EngineOptions& engine) {
  if (options.trace_sample == 0 && options.trace_sample_bytes)
    return "--trace-sample-bytes without --trace-sample; allowed: with the steps that are to be kept";
  if (options.trace_sample == 0) return "";
  if (!options.trace_dir) return "--trace-sample without --trace-dir; allowed: with a folder for the steps that are kept";
  if (engine.profile == "off") return "--trace-sample with --profile off, which records nothing; allowed: --profile 0, 1 or 2";
  return "";
}

}  // namespace ferry
