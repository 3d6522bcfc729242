#include "runtime/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>

#include "runtime/build_info.h"

namespace ferry {
namespace {

/// The folder of the demo checkpoint: beside the sources this program was built from, or named by the installation.
std::filesystem::path demo_checkpoint() { return std::filesystem::path(build_info::kSourceDir) / "launch" / "demo"; }

/// "1,2,3" as integers; CLI11 reports the exception's text with the option's name.
template <class Int>
std::vector<Int> parse_list(const std::string& text) {
  std::vector<Int> values;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = CLI::detail::trim_copy(text.substr(begin, end - begin));
    Int value{};
    const auto [stop, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (item.empty() || error != std::errc() || stop != item.data() + item.size()) {
      throw CLI::ValidationError("'" + item + "' is not an integer; allowed: a list such as 1,2,3");
    }
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

void add_engine_options(CLI::App& app, EngineOptions& o) {
  app.add_option_function<std::string>(
         "--model", [&o](const std::string& model) { o.model = model == "demo" ? demo_checkpoint() : std::filesystem::path(model); },
         "checkpoint folder, or 'demo' for the one that comes with Ferry")
      ->required();
  const std::map<std::string, DType> dtypes{{"f32", DType::kF32}, {"bf16", DType::kBF16}};
  app.add_option_function<DType>("--dtype", [&o](DType dtype) { o.dtype = dtype; }, "f32 or bf16; default: the checkpoint's")
      ->transform(CLI::CheckedTransformer(dtypes));
  app.add_option("--threads", o.threads, "threads of this rank; default: its share of the cores")->check(CLI::Range(1, 1024));
  const std::map<std::string, TransportKind> transports{{"auto", TransportKind::kAuto}, {"mpi", TransportKind::kMpi}, {"gloo", TransportKind::kGloo}};
  app.add_option("--transport", o.transport, "auto, mpi or gloo: what carries rows between ranks")->transform(CLI::CheckedTransformer(transports));
  app.add_option("--net-interface", o.net_interface, "interface or address for gloo; default: chosen by itself");
  app.add_option("--kernels", o.kernels, "auto, avx512, avx2 or ref: instruction set of the vector code")
      ->check(CLI::IsMember({"auto", "avx512", "avx2", "ref"}));
  app.add_option("--matmul", o.matmul, "auto, onednn, cpu or ref: who multiplies")->check(CLI::IsMember({"auto", "onednn", "cpu", "ref"}));
  app.add_option("--memory", o.memory_bytes, "for KV cache and recurrent state, such as 512MiB or 4GiB; default 2GiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 50));
  app.add_option("--max-seqs", o.max_seqs, "sequences that run at once; default 16")->check(CLI::Range(1, 65536));
  app.add_option("--max-waiting", o.max_waiting, "requests that may queue; default 256")->check(CLI::Range(1, 1 << 20));
  app.add_option("--token-budget", o.token_budget, "rows of a step; default 576")->check(CLI::Range(1, 1 << 20));
  app.add_option("--prefill-chunk", o.prefill_chunk, "tokens of one prompt in a step, 1 to 64 or a multiple of 64; default 512")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option_function<int64_t>("--max-context", [&o](int64_t n) { o.max_context = n; }, "tokens of prompt and completion; default: the checkpoint's")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30));
  app.add_option("--peer-timeout", o.peer_timeout_s, "seconds for a rank to answer; default 30")->check(CLI::Range(0.1, 86400.0));
  app.add_flag("--check-weights", o.check_weights, "refuse weights that are not finite, naming tensor and layer");
}

void add_sampling_options(CLI::App& app, SamplingParams& s) {
  app.add_option("--max-tokens", s.max_tokens, "most tokens to make; default 256")->check(CLI::Range(1, 1 << 30));
  app.add_option("--temperature", s.temperature, "0 is greedy; default 0")->check(CLI::Range(0.0, 1e6));
  app.add_option("--top-p", s.top_p, "above 0, at most 1; default 1")->check(CLI::Range(1e-9, 1.0));
  app.add_option("--top-k", s.top_k, "0 is off; default 0")->check(CLI::Range(0, 1 << 30));
  app.add_option("--seed", s.seed, "of the random numbers; default 0");
  app.add_option("--stop", s.stop, "a string that ends the text; may be given several times");
  app.add_flag("--ignore-eos", s.ignore_eos, "do not stop at the checkpoint's stop ids");
}

CLI::Option* add_token_ids(CLI::App& app, std::vector<TokenId>& ids) {
  return app.add_option_function<std::string>("--token-ids", [&ids](const std::string& text) { ids = parse_list<TokenId>(text); }, "token ids such as 1,2,3");
}

void add_generate(CLI::App& app, GenerateOptions& o) {
  auto* input = app.add_option_group("input", "what to complete, exactly one of these");
  input->add_option_function<std::string>("--prompt", [&o](const std::string& text) { o.prompt = text; }, "text to continue");
  input->add_option_function<std::string>("--chat", [&o](const std::string& text) { o.chat = text; }, "a user's message to answer");
  add_token_ids(*input, o.token_ids);
  input->require_option(1);
  using Mode = GenerateOptions::ThinkingMode;
  const std::map<std::string, Mode> modes{{"default", Mode::kDefault}, {"on", Mode::kOn}, {"off", Mode::kOff}};
  app.add_option("--thinking", o.thinking, "default, on or off: the chat template's thinking block")->transform(CLI::CheckedTransformer(modes));
  add_sampling_options(app, o.sampling);
  app.add_flag("--json", o.json, "print one JSON object instead of streaming text");
}

void add_bench(CLI::App& app, BenchOptions& o) {
  const auto add_list = [&app](const char* name, std::vector<int64_t>& values, const char* help) {
    app.add_option_function<std::string>(
        name,
        [&values](const std::string& text) {
          values = parse_list<int64_t>(text);
          if (*std::min_element(values.begin(), values.end()) < 1) throw CLI::ValidationError("'" + text + "' has a value below 1; allowed: positive integers");
        },
        help);
  };
  add_list("-p", o.prompt_lengths, "prompt lengths for prefill, such as 512,2048; default 512");
  add_list("-b", o.batches, "sequences that decode at once, such as 1,4,16; default 1");
  app.add_option("-n", o.decode_tokens, "tokens to decode per sequence; default 64")->check(CLI::Range(1, 1 << 20));
  app.add_option("-r", o.repetitions, "repetitions; default 5")->check(CLI::Range(1, 1000));
  app.add_flag("--json", o.json, "print one JSON object");
}

/// "a\nb" as one line: CLI11 joins several complaints by newlines.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

ParseResult parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app{"Ferry serves Qwen3.5-class mixture-of-experts models with their experts spread over ranks. Alone or under mpirun."};
  app.name("ferry");
  app.set_version_flag("--version", std::string("ferry ") + build_info::kVersion);
  app.require_subcommand(1);
  const auto add_command = [&](const char* name, const char* help, Command command) {
    CLI::App* sub = app.add_subcommand(name, help);
    add_engine_options(*sub, options.engine);
    sub->callback([&options, command] { options.command = command; });
    return sub;
  };
  CLI::App* serve = add_command("serve", "serve over gRPC", Command::kServe);
  serve->add_option("--grpc", options.serve.grpc_address, "HOST:PORT to serve gRPC on; port 0 chooses one; default 127.0.0.1:50051");
  serve->add_option("--drain-timeout", options.serve.drain_timeout_s, "seconds that open requests get after SIGTERM; default 30")->check(CLI::Range(0.0, 86400.0));
  add_generate(*add_command("generate", "one completion", Command::kGenerate), options.generate);
  CLI::App* dump = add_command("dump", "logits and, with --taps, hidden states, routing and DeltaNet states of a prompt", Command::kDump);
  add_token_ids(*dump, options.dump.token_ids)->required();
  dump->add_option("--out", options.dump.out, "safetensors file to write")->required();
  dump->add_flag("--taps", options.dump.taps, "also hidden.K, layers.N.topk_ids, layers.N.topk_weights, recurrent_state.N");
  add_bench(*add_command("bench", "prefill and decode speed beside the machine's measured roof", Command::kBench), options.bench);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {.options = std::nullopt, .message = app.help() , .exit_code = 0};
  } catch (const CLI::CallForVersion&) {
    return {.options = std::nullopt, .message = std::string("ferry ") + build_info::kVersion + "\n", .exit_code = 0};
  } catch (const CLI::ParseError& error) {
    return {.options = std::nullopt, .message = one_line(error.what()), .exit_code = 2};
  }
  if (options.command == Command::kBench) {
    // What is asked for is what gets room.
    EngineOptions& e = options.engine;
    e.max_seqs = std::max(e.max_seqs, *std::max_element(options.bench.batches.begin(), options.bench.batches.end()));
    e.token_budget = std::max(e.token_budget, e.max_seqs + std::min<int64_t>(e.prefill_chunk, 64));
  }
  return {.options = std::move(options), .message = "", .exit_code = 0};
}

}  // namespace ferry
