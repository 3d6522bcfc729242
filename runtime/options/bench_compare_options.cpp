#include "runtime/options/bench_compare_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/option_checks.h"

namespace ferry {

void add_bench_compare_options(CLI::App& app, BenchCompareOptions& o) {
  app.require_subcommand(1);
  CLI::App* sub = app.add_subcommand("compare", "hold two results of ferry bench --json against each other, row by row");
  sub->add_option("BEFORE AFTER", o.files, "files of two results")->required()->expected(2);
  sub->add_option_function<double>(
         "--fail-below", [&o](double ratio) { o.fail_below = ratio; },
         "exit with 1 if a row's median is below this ratio of the first one's and certainly slower, such as 0.95; default: "
         "never")
      ->check(number_in(0.0, 1.0, "0 to 1"));
  sub->add_flag("--json", o.json, "print one JSON object");
}

}  // namespace ferry
