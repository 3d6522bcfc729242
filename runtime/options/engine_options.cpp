#include "runtime/options/engine_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/build_info.h"
#include "runtime/options/option_checks.h"
#include "runtime/options/option_kinds.h"
#include "runtime/schedule/scheduler.h"

namespace ferry {
namespace {

/// The folder of the demo checkpoint: beside the sources this program was built from, or named by the installation.
std::filesystem::path demo_checkpoint() { return std::filesystem::path(build_info::kSourceDir) / "launch" / "demo"; }

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

void add_device(CLI::App& app, DeviceChoice& device) {
  const auto parse = [&device](const std::string& text) {
    const std::optional<DeviceChoice> choice = parse_device_choice(text);
    if (!choice) throw CLI::ValidationError("--device", complaint(text, kDeviceChoices));
    device = *choice;
  };
  app.add_option_function<std::string>("--device", parse,
                                       "what computes: cpu, auto (a GPU if there is one that can be used, else the CPU), "
                                       "vulkan (of a host's GPUs each rank takes "
                                       "one in turn) or vulkan:N as `ferry devices` numbers them; default cpu");
}

void add_threads(CLI::App& app, EngineOptions& o) {
  app.add_option("--threads", o.threads, "threads of this rank; default: its share of the cores")->check(integer_in(1, 1024));
}

void add_check_weights(CLI::App& app, EngineOptions& o) {
  app.add_flag("--check-weights", o.check_weights, "refuse weights that are not finite or differ from their checksums");
}

void add_profile(CLI::App& app, EngineOptions& o) {
  app.add_option(
         "--profile", o.profile,
         "spans recorded all the time: off, 0 (steps, messages, requests), 1 (and operators), 2 (and threads); default 0")
      ->check(one_of({"off", "0", "1", "2"}));
}

void add_faults(CLI::App& app, EngineOptions& o) {
  const auto parse = [&o](const std::string& text) {
    try {
      o.faults = parse_fault_plan(text);
    } catch (const Error& error) {
      throw CLI::ValidationError(std::string("--fault: ") + error.what());
    }
  };
  app.add_option_function<std::string>(
      "--fault", parse,
      "what is to go wrong, to see what becomes of it: kill:2@step=100, stop:1@3s+5s, "
      "cut:0-2@step=7, slow:3x4, slow:3+0.02s, nan:1@step=9; a comma between two; default: nothing");
}

/// Kernels of the CPU are none of a device's, nor are its caches of codes.
std::string check_device(const EngineOptions& o) {
  if (o.device.kind == DeviceChoice::Kind::kCpu) return "";
  for (const auto& [name, value] : {std::pair("--kernels", &o.kernels), std::pair("--matmul", &o.matmul)}) {
    if (*value == "auto") continue;
    return name + (": " + complaint(*value, "auto with --device " + device_choice_name(o.device))) +
           ", or any with --device cpu";
  }
  if (o.kv_cache_dtype == DType::kI8 && o.device.kind == DeviceChoice::Kind::kVulkan)
    return "--kv-cache-dtype: " + complaint("int8", "auto or bf16 with --device " + device_choice_name(o.device)) +
           ", or any with --device cpu";
  return "";
}

constexpr Speculation kAuto{Speculation::Source::kAuto, 0};

void add_speculation(CLI::App& app, EngineOptions& o, const std::string& help) {
  const auto parse = [&speculation = o.speculation](const std::string& text) {
    constexpr std::string_view kNgram = "ngram:";
    const bool is_ngram = text.starts_with(kNgram);
    const auto max_drafts = parse_number<int64_t>(is_ngram ? text.substr(kNgram.size()) : text);
    const bool is_in_range = max_drafts && *max_drafts >= (is_ngram ? 1 : 0) && *max_drafts <= Speculation::kMaxDrafts;
    if (text == "auto") {
      speculation = kAuto;
    } else if (is_in_range) {
      speculation = {is_ngram ? Speculation::Source::kNgram : Speculation::Source::kMtp, *max_drafts};
    } else {
      throw CLI::ValidationError("--speculate", complaint(text, "auto, 0 to 8, or ngram:1 to ngram:8"));
    }
  };
  app.add_option_function<std::string>("--speculate", parse, help);
}

}  // namespace

std::filesystem::path checkpoint_named(const std::string& model) {
  return model == "demo" ? demo_checkpoint() : std::filesystem::path(model);
}

void add_model_folder(CLI::App& app, EngineOptions& o) {
  app.add_option_function<std::string>(
         "--model", [&o](const std::string& model) { o.model = checkpoint_named(model); },
         "checkpoint folder, or 'demo' for the one that comes with Ferry")
      ->required();
}

void add_dtype(CLI::App& app, EngineOptions& o) {
  add_choice<DType>(
      app, "--dtype", {{"f32", DType::kF32}, {"bf16", DType::kBF16}}, [&o](DType dtype) { o.dtype = dtype; },
      "f32 or bf16; default: the checkpoint's");
}

void add_kernels(CLI::App& app, EngineOptions& o) {
  app.add_option("--kernels", o.kernels, "auto, avx512, avx2 or ref: instruction set of the CPU's vector code")
      ->check(one_of({"auto", "avx512", "avx2", "ref"}));
  app.add_option("--matmul", o.matmul,
                 "auto, amx, avx512_bf16, avx512_vnni, avx512, avx2, onednn or ref: who multiplies on the CPU")
      ->check(one_of({"auto", "amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "onednn", "ref"}));
}

void add_prefill_chunk(CLI::App& app, EngineOptions& o) {
  app.add_option("--prefill-chunk", o.prefill_chunk,
                 "tokens of one prompt in a step, 1 to 64 or a multiple of 64; default 2048")
      ->check(integer_in(1, 1 << 20));
}

void add_kv_cache_dtype(CLI::App& app, EngineOptions& o) {
  using Choice = std::optional<DType>;
  add_choice<Choice>(
      app, "--kv-cache-dtype", {{"auto", std::nullopt}, {"bf16", DType::kBF16}, {"int8", DType::kI8}},
      [&o](Choice dtype) { o.kv_cache_dtype = dtype; },
      "of keys and values: auto (the run's), bf16, or int8 (on the CPU): codes with an exponent for each 32 columns, half the "
      "memory; default auto");
}

void add_model_options(CLI::App& app, EngineOptions& o) {
  add_model_folder(app, o);
  add_dtype(app, o);
  add_threads(app, o);
}

CLI::Option* add_quantization(CLI::App& app, EngineOptions& o, const char* help) {
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
      "what carries rows between ranks: auto: sockets, where a lost worker ends no request; mpi, gloo: where it ends the job");
  add_placement_options(app, o.placement);
  add_choice<CombineMode>(
      app, "--combine", {{"exact", CombineMode::kExact}, {"fast", CombineMode::kFast}},
      [&o](CombineMode mode) { o.combine = mode; },
      "exact: the coordinator adds a token's experts, so that where they live changes no bit on ranks that compute on the same "
      "device; fast: each worker adds its own, and sends fewer rows; default exact");
  add_profile(app, o);
  add_clock_skew(app, o.clock_skew);
  app.add_option("--net-interface", o.net_interface, "interface or address for gloo; default: chosen by itself");
  add_device(app, o.device);
  add_kernels(app, o);
  add_quantization(app, o,
                   "none, native (the codes that the checkpoint holds), w8a8, w4a8 or w4a8:GROUP, or by part (experts, "
                   "shared, mixers, lm_head) as in experts=w4a8,lm_head=w8a8; "
                   "default: none, or what a folder of ferry quantize holds");
  add_kv_cache_dtype(app, o);
  app.add_option("--memory", o.memory_bytes, "for KV cache and recurrent state, such as 512MiB or 4GiB; default 2GiB")
      ->transform(size_in(int64_t{1} << 10, int64_t{1} << 50, "1KiB to 1PiB, such as 512MiB"))
      ->each([&o](const std::string&) { o.cache_need.memory_is_given = true; });
  app.add_option(
         "--swap-memory", o.swap_bytes,
         "of the host, for what the KV cache has no room for when those that run grow; 0B: it is computed anew; default "
         "1GiB, and no more than the KV cache takes")
      ->transform(size_in(0, int64_t{1} << 50, "0B to 1PiB, such as 512MiB"));
  app.add_option("--max-seqs", o.max_seqs, "sequences that run at once; default 16")
      ->check(integer_in(1, EngineOptions::kMaxSeqs));
  app.add_option("--max-waiting", o.max_waiting, "requests that may queue; default 256")->check(integer_in(1, 1 << 20));
  app.add_option("--token-budget", o.token_budget, "rows of a step; default 2112")->check(integer_in(1, 1 << 20));
  add_prefill_chunk(app, o);
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
  add_check_weights(app, o);
  add_faults(app, o);
}

void add_worker_options(CLI::App& app, EngineOptions& o) {
  add_model_folder(app, o);
  add_threads(app, o);
  add_device(app, o.device);
  add_check_weights(app, o);
  add_profile(app, o);
  add_clock_skew(app, o.clock_skew);
  add_faults(app, o);
  add_wait_to_merge(app, o.sharing);
}

void add_speculation(CLI::App& app, EngineOptions& o) {
  app.preparse_callback([&o](std::size_t) { o.speculation = kAuto; });  // the default of this command alone
  add_speculation(app, o,
                  "tokens that a step guesses and the next one tries at once, which changes no token: 0 to 8 by the "
                  "checkpoint's MTP layer, ngram:1 to ngram:8 by what followed the last tokens before, or auto; default auto: "
                  "by the MTP layer if there is one, as many as pay");
}

void add_measured_speculation(CLI::App& app, EngineOptions& o) {
  add_speculation(app, o,
                  "measure as well what drafts gain, with and without in turn: 0 to 8 by the checkpoint's MTP layer, ngram:1 "
                  "to ngram:8 by what followed the last tokens before, or auto, as many as pay; default 0");
}

void add_prefix_cache(CLI::App& app, EngineOptions& o) {
  app.add_option_function<int64_t>(
         "--prefix-cache-memory", [&o](int64_t size) { o.prefix_cache_bytes = size; },
         "of the host, for recurrent states from which prompts go on that begin alike; their keys and values stay in what "
         "--memory has to spare; 0B: every prompt is computed from its first token; default half of --memory")
      ->transform(size_in(0, int64_t{1} << 50, "0B to 1PiB, such as 512MiB"));
  app.add_option("--prefix-cache-disk", o.prefix_file_bytes,
                 "of a file for states, keys and values that memory has no more room for, which prompts get back where reading "
                 "is quicker than computing; it has no name and goes with the process; 0B: none; default 0B")
      ->transform(size_in(0, int64_t{1} << 50, "0B to 1PiB, such as 20GiB"));
  app.add_option("--prefix-cache-folder", o.prefix_file_folder,
                 "folder on the coordinator's disk for that file; default /var/tmp");
}

void add_lm_head_screen(CLI::App& app, EngineOptions& o) {
  app.add_flag(
      "--lm-head-screen", o.lm_head_screen,
      "keep a copy of a bf16 lm_head in 8 bits, half its size, that tells which few tokens may be the likeliest; these "
      "are computed in bf16: greedy steps take less time and choose the same tokens; on the CPU");
}

void add_expert_load(CLI::App& app, EngineOptions& o) {
  app.add_option("--expert-load", o.expert_load,
                 "file for what was asked of each expert: read at the start if it is there, written every few minutes and at "
                 "the end; default: none");
}

void add_capture_folder(CLI::App& app, EngineOptions& o) {
  app.add_option(
      "--trace", o.trace,
      "folder for a timeline of all ranks down to each operator (with --profile 2 each thread's share, too), with tables and a "
      "page; default: none");
  app.add_flag(
      "--trace-routing", o.trace_routing,
      "with --trace: record which experts the routers choose, too, for ferry trace routing, ferry plan and ferry bench "
      "--routing");
}

std::string check_together(const EngineOptions& o) {
  if (const std::string complaint = check_device(o); !complaint.empty()) return complaint;
  if (o.trace_routing && o.trace.empty()) return "--trace-routing: without --trace; allowed: with a folder for the capture";
  if (o.placement.rebalance_steps > 0 && o.transport != TransportKind::kAuto)
    return "--rebalance: with --transport mpi or gloo; allowed: with auto";
  if (o.sharing.coordinators > 1 && o.transport != TransportKind::kAuto)
    return "--coordinators: " + std::to_string(o.sharing.coordinators) + " with --transport mpi or gloo; allowed: with auto";
  if (const std::optional<PortSpan> ports = ports_of(o.elastic, o.sharing.coordinators)) {
    if (std::string complaint = check_ports({{*ports}}); !complaint.empty()) return complaint;
  }
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

}  // namespace ferry
