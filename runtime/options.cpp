#include "runtime/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/build_info.h"
#include "runtime/option_checks.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/server_options.h"
#include "runtime/version.h"

namespace ferry {
namespace {

constexpr int64_t kMaxSeqs = 65536;  // of --max-seqs and of a bench's batch

/// The folder of the demo checkpoint: beside the sources this program was built from, or named by the installation.
std::filesystem::path demo_checkpoint() { return std::filesystem::path(build_info::kSourceDir) / "launch" / "demo"; }

/// "demo" names the one that comes with Ferry.
std::filesystem::path checkpoint_named(const std::string& model) {
  return model == "demo" ? demo_checkpoint() : std::filesystem::path(model);
}

/// An option whose values are names of an enumeration.
template <class Enum>
CLI::Option* add_choice(CLI::App& app, const char* name, const std::vector<std::pair<std::string, Enum>>& choices,
                        std::function<void(Enum)> set, const char* help) {
  std::vector<std::string> names;
  for (const auto& [text, value] : choices) names.push_back(text);
  const auto choose = [choices, set = std::move(set)](const std::string& text) {
    for (const auto& [choice, value] : choices) {
      if (choice == text) set(value);
    }
  };
  return app.add_option_function<std::string>(name, choose, help)->check(one_of(names));
}

/// An option that is a list of integers such as 1,2,3, each in [lowest, highest].
template <class Int>
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<Int>& values, Int lowest, Int highest,
                      const char* help) {
  const bool is_open = highest == std::numeric_limits<Int>::max();
  const std::string range = "from " + std::to_string(lowest) + (is_open ? "" : " to " + std::to_string(highest));
  const auto parse = [&values, name, lowest, highest, range](const std::string& text) {
    values.clear();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::optional<Int> value = parse_number<Int>(CLI::detail::trim_copy(text.substr(begin, end - begin)));
      if (!value || *value < lowest || *value > highest)
        throw CLI::ValidationError(name, complaint(text, "integers " + range + ", such as 1,2,3"));
      values.push_back(*value);
      begin = end + 1;
    }
  };
  return app.add_option_function<std::string>(name, parse, help);
}

/// For tests alone, so --help does not show it.
void add_clock_skew(CLI::App& app, ClockSkew& skew) {
  const auto parse = [&skew](const std::string& text) {
    const std::size_t first = text.find(':'), second = text.find(':', first + 1);
    const auto rank = parse_number<int32_t>(text.substr(0, first));
    const auto offset = parse_number<int64_t>(text.substr(std::min(first + 1, text.size()), second - first - 1));
    const auto drift = parse_number<double>(text.substr(std::min(second + 1, text.size())));
    if (first == std::string::npos || second == std::string::npos || !rank || !offset || !drift)
      throw CLI::ValidationError("--trace-clock-skew", complaint(text, "RANK:NANOSECONDS:PPM"));
    skew = {.rank = *rank, .offset_ns = *offset, .drift_ppm = *drift};
  };
  app.add_option_function<std::string>("--trace-clock-skew", parse, "RANK:NANOSECONDS:PPM")->group("");
}

void add_trace(CLI::App& app, std::filesystem::path& trace) {
  app.add_option("--trace", trace, "folder for a timeline of all ranks, with tables and a page; default: none");
}

void add_model(CLI::App& app, EngineOptions& o) {
  app.add_option_function<std::string>(
         "--model", [&o](const std::string& model) { o.model = checkpoint_named(model); },
         "checkpoint folder, or 'demo' for the one that comes with Ferry")
      ->required();
}

/// What every command that reads weights takes.
void add_model_options(CLI::App& app, EngineOptions& o) {
  add_model(app, o);
  add_choice<DType>(
      app, "--dtype", {{"f32", DType::kF32}, {"bf16", DType::kBF16}}, [&o](DType dtype) { o.dtype = dtype; },
      "f32 or bf16; default: the checkpoint's");
  app.add_option("--threads", o.threads, "threads of this rank; default: its share of the cores")->check(integer_in(1, 1024));
}

CLI::Option* add_quantize(CLI::App& app, EngineOptions& o, const char* help) {
  const auto parse = [&o](const std::string& text) {
    try {
      o.quantization = parse_quantization(text);
    } catch (const Error& error) {
      throw CLI::ValidationError(error.what());
    }
  };
  return app.add_option_function<std::string>("--quantize", parse, help);
}

void add_engine_options(CLI::App& app, EngineOptions& o) {
  add_model_options(app, o);
  using enum TransportKind;
  add_choice<TransportKind>(
      app, "--transport", {{"auto", kAuto}, {"mpi", kMpi}, {"gloo", kGloo}}, [&o](TransportKind kind) { o.transport = kind; },
      "auto, mpi or gloo: what carries rows between ranks");
  add_choice<CombineMode>(
      app, "--combine", {{"exact", CombineMode::kExact}, {"fast", CombineMode::kFast}},
      [&o](CombineMode mode) { o.combine = mode; },
      "exact: the coordinator adds a token's experts, so that where they live changes no bit; fast: each worker adds its own, "
      "and sends fewer rows; default exact");
  app.add_option(
         "--profile", o.profile,
         "spans recorded all the time: off, 0 (steps, messages, requests), 1 (and operators), 2 (and threads); default 0")
      ->check(one_of({"off", "0", "1", "2"}));
  add_clock_skew(app, o.clock_skew);
  app.add_option("--net-interface", o.net_interface, "interface or address for gloo; default: chosen by itself");
  app.add_option("--kernels", o.kernels, "auto, avx512, avx2 or ref: instruction set of the vector code")
      ->check(one_of({"auto", "avx512", "avx2", "ref"}));
  app.add_option("--matmul", o.matmul, "auto, amx, avx512_bf16, avx512_vnni, avx512, avx2, onednn or ref: who multiplies")
      ->check(one_of({"auto", "amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "onednn", "ref"}));
  add_quantize(app, o,
               "none, w8a8, w4a8 or w4a8:GROUP, or by part (experts, shared, mixers, lm_head) as in experts=w4a8,lm_head=w8a8; "
               "default: none, or what a folder of ferry quantize holds");
  app.add_option("--memory", o.memory_bytes, "for KV cache and recurrent state, such as 512MiB or 4GiB; default 2GiB")
      ->transform(size_in(int64_t{1} << 10, int64_t{1} << 50, "1KiB to 1PiB, such as 512MiB"));
  app.add_option("--max-seqs", o.max_seqs, "sequences that run at once; default 16")->check(integer_in(1, kMaxSeqs));
  app.add_option("--max-waiting", o.max_waiting, "requests that may queue; default 256")->check(integer_in(1, 1 << 20));
  app.add_option("--token-budget", o.token_budget, "rows of a step; default 2112")->check(integer_in(1, 1 << 20));
  app.add_option("--prefill-chunk", o.prefill_chunk,
                 "tokens of one prompt in a step, 1 to 64 or a multiple of 64; default 2048")
      ->check(integer_in(1, 1 << 20));
  app.add_option_function<int64_t>(
         "--micro-batch", [&o](int64_t n) { o.micro_batch = n; },
         "rows that each half of a step must have for it to be computed in two halves, so that one's attention overlaps the "
         "other's experts; 0: never; default 256, or 0 where workers share the coordinator's cores")
      ->check(integer_in(0, 1 << 20));
  app.add_option_function<int64_t>(
         "--max-context", [&o](int64_t n) { o.max_context = n; }, "tokens of prompt and completion; default: the checkpoint's")
      ->check(integer_in(2, int64_t{1} << 30));
  app.add_option("--peer-timeout", o.peer_timeout_s, "seconds for a rank to answer; default 30")
      ->check(number_in(0.1, 86400.0, "0.1 to 86400 seconds"));
  app.add_flag("--check-weights", o.check_weights, "refuse weights that are not finite, naming tensor and element");
}

void add_sampling_options(CLI::App& app, SamplingParams& s) {
  app.add_option("--max-tokens", s.max_tokens, "most tokens to make; default 256")->check(integer_in(1, 1 << 30));
  app.add_option("--temperature", s.temperature, "0 is greedy; default 0")->check(number_in(0.0, 1e6, "0 to 1000000"));
  app.add_option("--top-p", s.top_p, "above 0, at most 1; default 1")->check(number_in(1e-9, 1.0, "above 0, at most 1"));
  app.add_option("--top-k", s.top_k, "0 is off; default 0")->check(integer_in(0, 1 << 30));
  app.add_option("--seed", s.seed, "of the random numbers; default 0")
      ->check(CLI::Validator(
          [](std::string& text) {
            return parse_number<uint64_t>(text) ? std::string() : complaint(text, "0 to 18446744073709551615");
          },
          ""));
  app.add_option("--stop", s.stop, "a string that ends the text; may be given several times");
  app.add_flag("--ignore-eos", s.ignore_eos, "do not stop at the checkpoint's stop ids");
}

CLI::Option* add_token_ids(CLI::App& app, std::vector<TokenId>& ids) {
  return add_list<TokenId>(app, "--token-ids", ids, 0, std::numeric_limits<TokenId>::max(), "token ids such as 1,2,3");
}

void add_generate(CLI::App& app, GenerateOptions& o) {
  // No group of CLI11's own: its group is a subcommand named "", and an empty argument would call it again and again.
  const std::string group = "What to complete, exactly one of these";
  app.add_option_function<std::string>(
         "--prompt", [&o](const std::string& text) { o.prompt = text; }, "text to continue")
      ->group(group);
  app.add_option_function<std::string>(
         "--chat", [&o](const std::string& text) { o.chat = text; }, "a user's message to answer")
      ->group(group);
  add_token_ids(app, o.token_ids)->group(group);
  using Mode = GenerateOptions::ThinkingMode;
  add_choice<Mode>(
      app, "--thinking", {{"default", Mode::kDefault}, {"on", Mode::kOn}, {"off", Mode::kOff}},
      [&o](Mode mode) { o.thinking = mode; }, "default, on or off: the chat template's thinking block");
  add_sampling_options(app, o.sampling);
  app.add_flag("--json", o.json, "print one JSON object instead of streaming text");
}

void add_bench(CLI::App& app, BenchOptions& o) {
  add_list<int64_t>(app, "-p", o.prompt_lengths, 1, 1 << 20, "prompt lengths for prefill, such as 512,2048; default 512");
  add_list<int64_t>(app, "-b", o.batches, 1, kMaxSeqs, "sequences that decode at once, such as 1,4,16; default 1");
  app.add_option("-n", o.decode_tokens, "tokens to decode per sequence; default 64")->check(integer_in(1, 1 << 20));
  app.add_option("-r", o.repetitions, "repetitions; default 5")->check(integer_in(1, 1000));
  app.add_flag("--json", o.json, "print one JSON object");
}

void add_dump(CLI::App& app, DumpOptions& o) {
  add_token_ids(app, o.token_ids)->required();
  app.add_option("--out", o.out, "safetensors file to write")->required();
  app.add_flag("--taps", o.taps, "also hidden.K, layers.N.topk_ids, layers.N.topk_weights, recurrent_state.N");
}

void add_quantize_options(CLI::App& app, Options& options) {
  add_model_options(app, options.engine);
  add_quantize(app, options.engine,
               "w8a8, w4a8 or w4a8:GROUP, or by part (experts, shared, mixers, lm_head) as in experts=w4a8,lm_head=w8a8")
      ->required();
  app.add_option("--out", options.quantize.out, "folder to write, new or empty")->required();
  app.callback([&options] {
    options.command = Command::kQuantize;
    if (!options.engine.quantization->any())
      throw CLI::ValidationError("--quantize", complaint("none", "w8a8, w4a8, w4a8:GROUP or by part; one part at least"));
  });
}

void add_inspect(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "DIR", [&options](const std::string& model) { options.engine.model = checkpoint_named(model); },
         "checkpoint folder, or 'demo' for the one that comes with Ferry")
      ->required();
  app.add_flag("--json", options.inspect.json, "print one JSON object");
  app.callback([&options] { options.command = Command::kInspect; });
}

void add_tokenize(CLI::App& app, Options& options) {
  TokenizeOptions& o = options.tokenize;
  add_model(app, options.engine);
  app.add_option_function<std::string>(
      "--text", [&o](const std::string& text) { o.text = text; }, "text to cut into tokens; default: standard input");
  app.add_option("--file", o.file, "file with such a text");
  add_list<TokenId>(app, "--ids", o.ids, 0, std::numeric_limits<TokenId>::max(), "token ids such as 1,2,3 to make text of");
  app.add_flag("--bare", o.bare, "without the tokens that the checkpoint puts before or after a prompt");
  app.add_flag("--json", o.json, "print one JSON object");
  app.callback([&options] { options.command = Command::kTokenize; });
}

void add_trace_actions(CLI::App& app, Options& options) {
  using Action = TraceOptions::Action;
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* help, Action action) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->callback([&options, action] {
      options.command = Command::kTrace;
      options.trace.action = action;
    });
    return sub;
  };
  std::vector<std::filesystem::path>& captures = options.trace.captures;
  add("report", "print the tables of a capture; write report.txt, report.html, report.json and csv/ into it", Action::kReport)
      ->add_option("DIR", captures, "folder of a capture")
      ->required()
      ->expected(1);
  add("export", "write trace.pftrace, trace.json, the Ascend layout and the report into a capture's folder", Action::kExport)
      ->add_option("DIR", captures, "folder of a capture")
      ->required()
      ->expected(1);
  add("diff", "compare two captures", Action::kDiff)
      ->add_option("BEFORE AFTER", captures, "folders of two captures")
      ->required()
      ->expected(2);
  CLI::App* merge = add("merge", "join captures of separate runs or hosts into one", Action::kMerge);
  merge->add_option("DIRS", captures, "folders of two or more captures")->required()->expected(2, 1024);
  merge->add_option("--out", options.trace.out, "folder for the joined capture")->required();
}

/// CLI11's words for a value that is missing or given twice, in ours: it shows types and counts of its own.
std::string reword(const std::string& text) {
  const std::string name = text.substr(0, text.find(": "));
  const std::size_t begin = text.find(":["), end = text.rfind(']');
  if (text.ends_with(" missing")) {
    const bool has_range = begin != std::string::npos && end != std::string::npos;
    return name + ": a value is missing" + (has_range ? "; allowed: " + text.substr(begin + 2, end - begin - 2) : "");
  }
  const std::size_t received = text.find(" required but received ");
  if (received == std::string::npos || name.size() + 2 > received) return text;
  const std::string given = text.substr(text.rfind(' ') + 1), bound = text.substr(name.size() + 2, received - name.size() - 2);
  if (bound.starts_with("At least ")) return name + ": " + given + " given; allowed: " + bound.substr(9) + " or more";
  const std::string most = bound.substr(bound.rfind(' ') + 1);
  if (most == "1") return name + ": given " + given + " times; allowed: once";
  return name + ": " + given + " given; allowed: at most " + most;
}

/// "a\nb" as one line: CLI11 joins several complaints by newlines.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

ParseResult refuse(const std::string& message) {
  return {.options = std::nullopt, .message = one_line(message), .exit_code = 2};
}

/// What a command line without a known command gets to hear.
ParseResult refuse_command(const CLI::App& app, int argc, const char* const* argv) {
  std::string allowed;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    allowed += (allowed.empty() ? "" : ", ") + sub->get_name();
  const std::string given = argc > 1 ? "'" + std::string(argv[1]) + "' is not a command" : "a command is missing";
  return refuse(given + "; allowed: " + allowed + " (ferry --help)");
}

/// Arguments that no option of the command takes. CLI11's own words do not show an empty one.
ParseResult refuse_extras(const CLI::App& app) {
  std::string given;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_subcommands().empty() ? nullptr : at->get_subcommands().front())
    for (const std::string& argument : at->remaining()) given += (given.empty() ? "'" : ", '") + argument + "'";
  return refuse("not expected: " + given);
}

/// What no single option can tell. Empty if all is well.
std::string check_together(const EngineOptions& o) {
  const std::string chunk = std::to_string(o.prefill_chunk);
  if (o.prefill_chunk > kMaxPrefillQuantum && o.prefill_chunk % kMaxPrefillQuantum != 0) {
    return "--prefill-chunk: " + complaint(chunk, "1 to 64, or a multiple of 64");
  }
  const int64_t least = o.max_seqs + prefill_quantum(o.prefill_chunk);
  if (o.token_budget >= least) return "";
  return "--token-budget: " +
         complaint(std::to_string(o.token_budget), "at least " + std::to_string(least) + ", a row for each of --max-seqs " +
                                                       std::to_string(o.max_seqs) + " and a piece of --prefill-chunk " + chunk);
}

std::string check_together(const GenerateOptions& o) {
  const int num_inputs = o.prompt.has_value() + o.chat.has_value() + !o.token_ids.empty();
  if (num_inputs == 1) return "";
  return "exactly one of --prompt, --chat, --token-ids is required; " + std::to_string(num_inputs) + " were given";
}

std::string check_together(const TokenizeOptions& o) {
  const int num_inputs = o.text.has_value() + !o.file.empty() + !o.ids.empty();
  if (num_inputs > 1) return "at most one of --text, --file, --ids is allowed; " + std::to_string(num_inputs) + " were given";
  return o.bare && !o.ids.empty() ? "--bare is for text, --ids is given" : "";
}

/// All commands, but options only for those whose name occurs in `arguments`: making them takes longer than parsing.
void add_commands(CLI::App& app, Options& options, std::span<const char* const> arguments) {
  const auto add = [&](const char* name, const char* help, const std::function<void(CLI::App&)>& add_options) {
    CLI::App* sub = app.add_subcommand(name, help);
    const bool occurs = std::any_of(arguments.begin(), arguments.end(),
                                    [&](const char* argument) { return std::string_view(argument) == name; });
    if (occurs) add_options(*sub);
  };
  const auto add_engine_command = [&](const char* name, const char* help, Command command, auto add_own_options) {
    add(name, help, [&](CLI::App& sub) {
      add_engine_options(sub, options.engine);
      add_own_options(sub);
      sub.callback([&options, command] { options.command = command; });
    });
  };
  add_engine_command("serve", "serve over gRPC", Command::kServe,
                     [&](CLI::App& sub) { add_serve_options(sub, options.serve); });
  add_engine_command("generate", "one completion", Command::kGenerate, [&](CLI::App& sub) {
    add_generate(sub, options.generate);
    add_trace(sub, options.engine.trace);
  });
  add_engine_command("dump", "logits and, with --taps, hidden states, routing and DeltaNet states of a prompt", Command::kDump,
                     [&](CLI::App& sub) { add_dump(sub, options.dump); });
  add_engine_command("bench", "prefill and decode speed beside the machine's measured roof", Command::kBench,
                     [&](CLI::App& sub) {
                       add_bench(sub, options.bench);
                       add_trace(sub, options.engine.trace);
                     });
  add("quantize", "write a checkpoint folder whose weights are quantised and packed, so that later starts only map them",
      [&](CLI::App& sub) { add_quantize_options(sub, options); });
  add("inspect", "what a checkpoint holds, what memory its ranks need, what would be refused",
      [&](CLI::App& sub) { add_inspect(sub, options); });
  add("tokenize", "the tokens of a text, or the text of tokens", [&](CLI::App& sub) { add_tokenize(sub, options); });
  add("trace", "what can be made of captures: report, export, diff, merge",
      [&](CLI::App& sub) { add_trace_actions(sub, options); });
}

}  // namespace

ParseResult parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app{
      "Ferry serves Qwen3.5-class mixture-of-experts models with their experts spread over ranks. Alone or under mpirun."};
  app.name("ferry");
  app.set_version_flag("--version", "ferry", "print the version, the instruction sets and the libraries in use");
  app.require_subcommand(1);
  add_commands(app, options, {argv, static_cast<std::size_t>(argc)});
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {.options = std::nullopt, .message = app.help(), .exit_code = 0};
  } catch (const CLI::CallForVersion&) {
    return {.options = std::nullopt, .message = version_text(), .exit_code = 0};
  } catch (const CLI::ArgumentMismatch& error) {
    return refuse(reword(error.what()));
  } catch (const CLI::ExtrasError&) {
    return app.get_subcommands().empty() ? refuse_command(app, argc, argv) : refuse_extras(app);
  } catch (const CLI::ParseError& error) {
    return app.get_subcommands().empty() ? refuse_command(app, argc, argv) : refuse(error.what());
  }
  if (options.command == Command::kBench) {
    // What is asked for is what gets room: some tokens stand before the decode steps.
    EngineOptions& e = options.engine;
    const int64_t longest =
        std::max(*std::max_element(options.bench.prompt_lengths.begin(), options.bench.prompt_lengths.end()),
                 BenchOptions::kDecodePrompt + options.bench.decode_tokens);
    if (!e.max_context) e.max_context = longest + 1;
    e.max_seqs = std::max(e.max_seqs, *std::max_element(options.bench.batches.begin(), options.bench.batches.end()));
    e.token_budget = std::max(e.token_budget, e.max_seqs + std::min<int64_t>(e.prefill_chunk, 64));
  }
  if (const std::string complaint = check_together(options.engine); !complaint.empty()) return refuse(complaint);
  if (options.command == Command::kGenerate) {
    if (const std::string complaint = check_together(options.generate); !complaint.empty()) return refuse(complaint);
  }
  if (options.command == Command::kTokenize) {
    if (const std::string complaint = check_together(options.tokenize); !complaint.empty()) return refuse(complaint);
  }
  if (options.command == Command::kServe) {
    if (const char* key = std::getenv("FERRY_API_KEY")) options.serve.access.api_key = key;
    if (const std::string complaint = check_together(options.serve); !complaint.empty()) return refuse(complaint);
  }
  return {.options = std::move(options), .message = "", .exit_code = 0};
}

}  // namespace ferry
