#include "runtime/options/trace_options.h"

#include <CLI/CLI.hpp>

#include "profiler/archive/moment.h"
#include "runtime/options/option_checks.h"

namespace ferry {
namespace {

/// "7" or "7..20".
std::string read_steps(const std::string& text, TraceOptions& o) {
  const std::size_t dots = text.find("..");
  const auto first = parse_number<uint32_t>(text.substr(0, dots));
  const auto last = dots == std::string::npos ? first : parse_number<uint32_t>(text.substr(dots + 2));
  if (!first || !last || *first > *last) return complaint(text, "a step N, or steps A..B with A at most B");
  o.first_step = *first;
  o.last_step = *last;
  return "";
}

void add_archive_options(CLI::App& archive, TraceOptions& o) {
  archive.add_option("DIR", o.captures, "--trace-dir of a server with --trace-sample, or its archive")->required()->expected(1);
  CLI::Option* at =
      archive.add_option("--at", o.archive.at, "moment of the local clock: HH:MM[:SS], the last one, or YYYY-MM-DDTHH:MM[:SS]");
  at->check([](const std::string& text) {
    const std::string years = std::to_string(kFirstYear) + " to " + std::to_string(kLastYear);
    return parse_moment(text, INT32_MAX) ? "" : complaint(text, "HH:MM[:SS] or YYYY-MM-DDTHH:MM[:SS] of the years " + years);
  });
  archive.add_option("--last", o.archive.last, "how far to look back: 90s, 15m, 1h, 2d; default 24h")
      ->check([](const std::string& text) { return parse_span(text) ? "" : complaint(text, "90s, 15m, 1h, 2d, up to 366d"); })
      ->excludes(at);
  archive.add_option("--phase", o.archive.phase, "steps of it alone: prefill, decode or mixed")
      ->check(one_of({"prefill", "decode", "mixed"}));
  archive.add_option("--slowest", o.archive.num_slowest, "the slowest so many")->check(integer_in(1, 64));
  archive.add_flag("--json", o.json, "as JSON");
  archive.add_option("--out", o.out, "folder for a capture of these steps, for ferry trace report");
}

}  // namespace

void add_trace_options(CLI::App& app, TraceOptions& o) {
  using Action = TraceOptions::Action;
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* help, Action action) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->callback([&o, action] { o.action = action; });
    return sub;
  };
  std::vector<std::filesystem::path>& captures = o.captures;
  CLI::App* report = add("report", "print the tables of a capture; write report.txt, report.html, report.json and csv/ into it",
                         Action::kReport);
  report->add_option("DIR", captures, "folder of a capture, or a kept step of an archive")->required()->expected(1);
  report->add_option_function<std::string>(
      "--steps",
      [&o](const std::string& text) {
        if (const std::string wrong = read_steps(text, o); !wrong.empty()) throw CLI::ValidationError("--steps", wrong);
      },
      "steps whose timelines report.html is to hold in any case: N, or A..B");
  CLI::App* exported =
      add("export", "write every timeline, profile, table and the report into a capture's folder", Action::kExport);
  exported->add_option("DIR", captures, "folder of a capture")->required()->expected(1);
  exported
      ->add_option("--otlp", o.out,
                   "instead: steps and requests as OpenTelemetry spans, into a file (OTLP's JSON, a message a line) or to "
                   "a collector's http[s]:// URL")
      ->check([](const std::string& text) {
        return text.empty() ? complaint(text, "a file, or http[s]://HOST[:PORT][/PATH]") : "";
      });
  add("diff", "compare two captures", Action::kDiff)
      ->add_option("BEFORE AFTER", captures, "folders of two captures")
      ->required()
      ->expected(2);
  CLI::App* verify =
      add("verify",
          "say whether the gains came that the first capture's actions predict, and where time was saved; the "
          "exit code is 0 if all that were tried did, at least in part, 1 if one did not, 3 if it cannot be told",
          Action::kVerify);
  verify->add_option("BEFORE AFTER", captures, "folders of two captures of the same work")->required()->expected(2);
  verify->add_flag("--json", o.json, "print one JSON object");
  CLI::App* merge = add("merge", "join captures of separate runs or hosts into one", Action::kMerge);
  merge->add_option("DIRS", captures, "folders of two or more captures")->required()->expected(2, 1024);
  merge->add_option("--out", o.out, "folder for the joined capture")->required();
  add_archive_options(
      *add("archive", "what a server's --trace-sample kept: which steps, how long all took, what was wrong", Action::kArchive),
      o);
  CLI::App* routing =
      add("routing", "print how even the routing is that a capture recorded (--trace-routing); export it", Action::kRouting);
  routing->add_option("CAPTURE", captures, "folder of a capture, or a file of routing")->required()->expected(1);
  routing->add_option(
      "--out", o.out,
      "file to write: .ferryrt, .csv (layer,expert,rows,touched), .npy (int16 [rows, layers, k]) or .json (loads)");
}

}  // namespace ferry
