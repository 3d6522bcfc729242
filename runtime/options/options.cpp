#include "runtime/options/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/cache_folder.h"
#include "runtime/base/runtime_folder.h"
#include "runtime/base/timeout_factor.h"
#include "runtime/options/option_checks.h"
#include "runtime/options/option_words.h"
#include "runtime/options/refusals.h"
#include "runtime/options/scheduling_options.h"
#include "runtime/options/step_archive_options.h"
#include "runtime/version.h"

namespace ferry {
namespace {

constexpr const char* kBenchHelp =
    "prefill and decode speed beside the machine's measured roof; 'bench compare BEFORE AFTER' holds two results of it "
    "(--json) "
    "against each other";

/// Both are `bench`: what compares needs no model, which the other cannot do without.
bool is_bench_compare(std::span<const char* const> arguments) {
  return arguments.size() > 2 && arguments[1] == std::string_view("bench") && arguments[2] == std::string_view("compare");
}

void add_all_bench_options(CLI::App& sub, Options& o) {
  add_engine_options(sub, o.engine);
  add_expert_load(sub, o.engine);
  add_lm_head_screen(sub, o.engine);
  add_bench_options(sub, o.bench);
  add_measured_speculation(sub, o.engine);
  add_capture_folder(sub, o.engine);
  add_refused_trace_sample(sub,
                           "bench times steps back to back, and collecting kept ones would be part of what it times; allowed: "
                           "--trace DIR, which has every step, or ferry batch and ferry serve");
}

/// All commands, but options only for those whose name occurs in `arguments`: making them takes longer than parsing.
void add_commands(CLI::App& app, Options& o, std::span<const char* const> arguments) {
  const auto add = [&](const char* name, const char* help, Command command, const std::function<void(CLI::App&)>& add_options) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->callback([&o, command] { o.command = command; });
    const bool occurs = std::any_of(arguments.begin(), arguments.end(),
                                    [&](const char* argument) { return std::string_view(argument) == name; });
    if (occurs) add_options(*sub);
  };
  add("serve", "serve over gRPC", Command::kServe, [&](CLI::App& sub) {
    add_engine_options(sub, o.engine);
    add_speculation(sub, o.engine);
    add_prefix_cache(sub, o.engine);
    add_scheduling_options(sub, o.engine.policy);
    add_media_options(sub, o.engine.media);
    add_expert_load(sub, o.engine);
    add_lm_head_screen(sub, o.engine);
    add_elastic_options(sub, o.engine.elastic);
    add_sharing_options(sub, o.engine.sharing);
    add_serve_options(sub, o.serve);
  });
  add("generate", "one completion", Command::kGenerate, [&](CLI::App& sub) {
    add_engine_options(sub, o.engine);
    add_speculation(sub, o.engine);
    add_media_options(sub, o.engine.media);
    add_expert_load(sub, o.engine);
    add_lm_head_screen(sub, o.engine);
    add_generate_options(sub, o.generate);
    add_capture_folder(sub, o.engine);
  });
  add("dump", "logits and, with --taps, hidden states, routing and DeltaNet states of a prompt", Command::kDump,
      [&](CLI::App& sub) {
        add_engine_options(sub, o.engine);
        add_dump_options(sub, o.dump);
      });
  const bool compares = is_bench_compare(arguments);
  add("bench", kBenchHelp, compares ? Command::kBenchCompare : Command::kBench,
      [&](CLI::App& sub) { compares ? add_bench_compare_options(sub, o.bench_compare) : add_all_bench_options(sub, o); });
  add("batch", "answer a file of requests in OpenAI's batch form", Command::kBatch, [&](CLI::App& sub) {
    add_engine_options(sub, o.engine);
    add_speculation(sub, o.engine);
    add_prefix_cache(sub, o.engine);
    add_scheduling_options(sub, o.engine.policy);
    add_media_options(sub, o.engine.media);
    add_expert_load(sub, o.engine);
    add_lm_head_screen(sub, o.engine);
    add_elastic_options(sub, o.engine.elastic);
    add_batch_options(sub, o.batch);
  });
  add("worker", "hold experts for a coordinator that runs already", Command::kWorker, [&](CLI::App& sub) {
    add_worker_options(sub, o.engine);
    add_join_options(sub, o.join);
  });
  add("front", "one port before several coordinators: calls go by session, cached prompt and load", Command::kFront,
      [&](CLI::App& sub) { add_front_options(sub, o.front); });
  add("quantize", "write a checkpoint folder whose weights are quantised and packed, so that later starts only map them",
      Command::kQuantize, [&](CLI::App& sub) { add_quantize_options(sub, o.quantize, o.engine); });
  add("inspect", "what a checkpoint holds, what memory its ranks need, what would be refused", Command::kInspect,
      [&](CLI::App& sub) { add_inspect_options(sub, o.inspect, o.engine); });
  add("tokenize", "the tokens of a text, or the text of tokens", Command::kTokenize,
      [&](CLI::App& sub) { add_tokenize_options(sub, o.tokenize, o.engine); });
  add("trace", "what can be made of captures: report, export, diff, verify, merge, archive, routing", Command::kTrace,
      [&](CLI::App& sub) { add_trace_options(sub, o.trace); });
  add("devices", "what --device can be on this machine", Command::kDevices,
      [&](CLI::App& sub) { add_devices_options(sub, o.devices); });
  add("plan", "tokens/s, memory and bounds of numbers of workers and copies that are not there", Command::kPlan,
      [&](CLI::App& sub) { add_plan_options(sub, o.plan, o.engine); });
  add("top", "a live view of a server: requests, steps, phases, cache, experts, ranks", Command::kTop,
      [&](CLI::App& sub) { add_top_options(sub, o.top); });
}

/// What commands take from the environment.
void read_environment(Options& o) {
  o.timeout_factor = parse_timeout_factor(std::getenv("FERRY_TIMEOUT_FACTOR")).value_or(1);
  const auto text_of = [](const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
  };
  o.engine.cache_folder = cache_folder(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
  o.engine.elastic.own_key_folder = o.join.own_key_folder = runtime_folder(std::getenv("XDG_RUNTIME_DIR"));
  std::optional<std::string> key;
  if (const char* text = std::getenv("FERRY_API_KEY")) key = text;
  if (o.command == Command::kServe) o.serve.access.api_key = key;
  if (o.command == Command::kFront) o.front.access.api_key = key;
  if (o.command == Command::kTop) o.top.api_key = key;
  const std::string service = text_of("OTEL_SERVICE_NAME");
  o.serve.otlp_service_name = service.empty() ? "ferry" : service;
  o.top.term = text_of("TERM");
  o.top.no_color = !text_of("NO_COLOR").empty();  // no-color.org: of any value but an empty one
}

/// What no single option can tell. Empty if all is well.
std::string check_together(const Options& o) {
  if (!parse_timeout_factor(std::getenv("FERRY_TIMEOUT_FACTOR")))
    return "FERRY_TIMEOUT_FACTOR: " +
           complaint(std::getenv("FERRY_TIMEOUT_FACTOR"), "1 to " + std::to_string(kMaxTimeoutFactor));
  std::string complaint = check_together(o.engine);
  if (!complaint.empty()) return complaint;
  switch (o.command) {
    case Command::kServe: return check_together(o.serve, o.engine);
    case Command::kGenerate: return check_together(o.generate);
    case Command::kQuantize: return check_together(o.quantize, o.engine);
    case Command::kTokenize: return check_together(o.tokenize);
    case Command::kTop: return check_together(o.top);
    case Command::kFront: return check_together(o.front);
    case Command::kPlan: return check_together(o.plan, o.engine);
    case Command::kBench: return check_together(o.bench, o.engine);
    case Command::kBatch: return check_together(o.batch, o.engine);
    case Command::kBenchCompare:
    case Command::kDump:
    case Command::kInspect:
    case Command::kTrace:
    case Command::kDevices:
    case Command::kWorker: break;
  }
  return "";
}

}  // namespace

ParseResult parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app{
      "Ferry serves Qwen3.5-class mixture-of-experts models with their experts spread over ranks. Alone or under mpirun."};
  app.name("ferry");
  app.set_version_flag("--version", "ferry", "print the version, the instruction sets, the GPUs and the libraries in use");
  app.require_subcommand(1);
  const std::span<const char* const> given(argv, static_cast<std::size_t>(argc));
  add_commands(app, options, given);
  std::vector<std::string> arguments = replace_option_words(app, given);
  std::ranges::reverse(arguments);  // as CLI11 takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return {.options = std::nullopt, .message = app.help(), .exit_code = 0};
  } catch (const CLI::CallForVersion&) {
    return {.options = std::nullopt, .message = version_text(), .exit_code = 0};
  } catch (const CLI::ArgumentMismatch& error) {
    return refuse_count(error.what());
  } catch (const CLI::ExtrasError&) {
    return lacks_command(app) ? refuse_command(app, argc, argv) : refuse_extras(app);
  } catch (const CLI::RequiredError& error) {  // what is required may be among what is not known
    if (lacks_command(app)) return refuse_command(app, argc, argv);
    return has_extras(app) ? refuse_extras(app) : refuse(error.what());
  } catch (const CLI::ParseError& error) {
    return lacks_command(app) ? refuse_command(app, argc, argv) : refuse(error.what());
  }
  read_environment(options);
  const bool serves = options.command == Command::kServe || options.command == Command::kBatch;
  options.engine.media.is_wanted = serves || (options.command == Command::kGenerate && options.generate.has_media());
  if (options.command == Command::kBench) make_room(options.bench, options.engine);
  options.engine.shares_blocks = serves;
  if (serves && !options.engine.prefix_cache_bytes) options.engine.prefix_cache_bytes = options.engine.memory_bytes / 2;
  if (const std::string complaint = check_together(options); !complaint.empty()) return refuse(complaint);
  return {.options = std::move(options), .message = "", .exit_code = 0};
}

}  // namespace ferry
