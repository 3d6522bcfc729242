#include "runtime/options/plan_options.h"

#include <CLI/CLI.hpp>
#include <set>
#include <string_view>

#include "moe/placement/placement_types.h"
#include "runtime/options/engine_options.h"
#include "runtime/options/option_checks.h"
#include "runtime/options/option_kinds.h"

namespace ferry {
namespace {

constexpr int64_t kPlanBatchMax = 4096;

/// The parts of `text` between commas.
std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

void add_machines(CLI::App& app, PlanOptions& o) {
  app.add_option("--hosts", o.hosts, "file of machines, as --measure --save writes it; the first is the coordinator's");
  app.add_flag("--measure", o.measure,
               "measure this machine with the model's own weights, which takes about 15 s and its time to load");
  app.add_option("--save", o.save, "with --measure: file for what was measured, which --hosts reads");
  const auto parse_link = [&o](const std::string& text) {
    const std::size_t comma = text.find(',');
    const auto rate = parse_number<double>(text.substr(0, comma));
    const auto trip = parse_number<double>(comma == std::string::npos ? "" : text.substr(comma + 1));
    if (!rate || !trip || !(*rate > 0 && *rate <= 1e5) || !(*trip >= 0 && *trip <= 1e6))
      throw CLI::ValidationError("--link",
                                 complaint(text, "GBIT,US: Gbit/s above 0 and microseconds of a round trip, such as 10,50"));
    o.link_gbit_per_s = *rate;
    o.link_us = *trip;
  };
  app.add_option_function<std::string>(
      "--link", parse_link,
      "GBIT,US: every rank has a machine of its own, like the first, behind links of GBIT Gbit/s and "
      "US microseconds there and back; default: all share the machines there are");
}

}  // namespace

std::optional<PlanCopies> parse_copies(const std::string& text) {
  if (text == "0") return PlanCopies{};
  if (text == "2x") return PlanCopies{.name = text, .kind = Redundancy::Kind::kTwice};
  if (!text.ends_with('%')) return std::nullopt;
  const auto percent = parse_number<double>(text.substr(0, text.size() - 1));
  if (!percent || !(*percent > 0 && *percent <= 100)) return std::nullopt;
  return PlanCopies{.name = text, .extra_share = *percent / 100};
}

std::optional<std::vector<int64_t>> parse_ranges(const std::string& text, int64_t least, int64_t most) {
  std::set<int64_t> numbers;
  for (const std::string& part : split_at_commas(text)) {
    const std::size_t dots = part.find("..");
    const auto first = parse_number<int64_t>(part.substr(0, dots));
    const auto last = dots == std::string::npos ? first : parse_number<int64_t>(part.substr(dots + 2));
    if (!first || !last || *first < least || *last > most || *first > *last) return std::nullopt;
    for (int64_t n = *first; n <= *last; ++n) numbers.insert(n);
  }
  return std::vector<int64_t>(numbers.begin(), numbers.end());
}

void add_plan_options(CLI::App& app, PlanOptions& o, EngineOptions& engine) {
  add_model_folder(app, engine);
  add_dtype(app, engine);
  add_quantization(app, engine, "as ferry serve takes it");
  add_kv_cache_dtype(app, engine);
  add_lm_head_screen(app, engine);
  add_prefill_chunk(app, engine);
  add_kernels(app, engine);
  app.add_option("--threads", engine.threads, "cores of this machine that --measure counts on; default: all it may use")
      ->check(integer_in(1, 4096));
  app.add_option("--trace", o.trace, "routing that a capture recorded (--trace-routing), or its folder");
  app.add_option_function<double>(
         "--skew", [&o](double skew) { o.skew = skew; },
         "without --trace: slope of the experts' popularity over their rank (Zipf); default 0.5")
      ->check(number_in(0, 4, "0 to 4"));
  const auto ranges = [&app](const char* name, std::vector<int64_t>& values, int64_t least, int64_t most, const char* help) {
    const auto parse = [name, &values, least, most](const std::string& text) {
      const auto numbers = parse_ranges(text, least, most);
      if (!numbers) {
        throw CLI::ValidationError(name, complaint(text, "numbers from " + std::to_string(least) + " to " +
                                                             std::to_string(most) + " such as 1,2,4 or 1..8"));
      }
      values = *numbers;
    };
    app.add_option_function<std::string>(name, parse, help);
  };
  ranges("--workers", o.workers, 0, kMaxWorkers,
         "ranks that hold experts, such as 1,2,4 or 1..8; 0: one process; default 0,1,2,4");
  ranges("--batch", o.batches, 1, kPlanBatchMax, "sequences that decode at once; default 1,16");
  ranges("--coordinators", o.coordinators, 1, kMaxWorkers,
         "of the same workers, each with its share of the sequences; default 1");
  const auto parse_list = [&o](const std::string& text) {
    o.copies.clear();
    for (const std::string& part : split_at_commas(text)) {
      const std::optional<PlanCopies> copies = parse_copies(part);
      if (!copies) throw CLI::ValidationError("--redundancy", complaint(text, "a list of 0, percentages up to 100% and 2x"));
      o.copies.push_back(*copies);
    }
  };
  app.add_option_function<std::string>("--redundancy", parse_list,
                                       "copies of experts beyond the first, such as 0,12.5%,25%,2x; default 0");
  app.add_flag("--spread", o.is_spread, "without copies, too, place experts by what they cost; default: consecutive slices");
  add_list(app, "-d", o.depths, 0, 1 << 20,
           "tokens of context, such as 0,8192,32768, behind which all is planned, as ferry bench measures it: prompts begin "
           "there; default 0");
  app.add_option("--context", o.context, "tokens behind each sequence that decodes, beside those of -d; default 64")
      ->check(integer_in(1, 1 << 20));
  app.add_option("--prompt", o.prompt, "tokens of a prompt; default 512")->check(integer_in(1, 1 << 20));
  add_machines(app, o);
  app.add_option("--svg", o.svg, "file for a picture of tokens/s over workers");
  app.add_flag("--json", o.json, "print one JSON object");
}

std::string check_together(const PlanOptions& o, const EngineOptions& e) {
  if (o.measure == !o.hosts.empty()) return "plan: needs one of --measure and --hosts FILE";
  if (!o.save.empty() && !o.measure) return "--save: only with --measure";
  if (!o.measure && e.threads > 0) return "--threads: only with --measure; allowed with --hosts: the cores that the file has";
  if (!o.measure && e.kernels != "auto") return "--kernels: only with --measure; allowed with --hosts: auto";
  if (!o.measure && e.matmul != "auto") return "--matmul: only with --measure; allowed with --hosts: auto";
  if (o.skew && !o.trace.empty()) return "--skew: not with --trace, which has the routing; allowed with it: none";
  return "";
}

}  // namespace ferry
