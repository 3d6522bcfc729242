#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "moe/combine_mode.h"
#include "runtime/access_options.h"
#include "runtime/base/types.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/schedule/request.h"
#include "runtime/server_limits.h"
#include "runtime/trace/clock_skew.h"

namespace ferry {

enum class Command { kServe, kGenerate, kDump, kBench, kQuantize, kInspect, kTokenize, kTrace };
enum class TransportKind { kAuto, kMpi, kGloo };

/// What every rank of a job needs; the same command line reaches all of them. Parsed and checked once, in parse_options.
struct EngineOptions {
  std::filesystem::path model;  // checkpoint folder
  std::optional<DType> dtype;   // of the run; absent: the checkpoint's
  int32_t threads = 0;          // per rank; 0: the cores this rank can have (see default_threads)
  TransportKind transport = TransportKind::kAuto;
  std::string net_interface;                  // of gloo: name or address; empty: chosen
  std::string kernels = "auto";               // auto, avx512, avx2, ref
  std::string matmul = "auto";                // auto, onednn, ref, or own kernels: amx, avx512_bf16, avx512_vnni, avx512, avx2
  std::optional<Quantization> quantization;   // of the weights, while loading; absent: none, or what a packed folder holds
  CombineMode combine = CombineMode::kExact;  // who adds up the experts' rows
  std::string profile = "0";    // spans recorded while no capture runs: off, 0 (steps), 1 (operators), 2 (threads)
  std::filesystem::path trace;  // of generate and bench: folder for a capture; empty: none
  ClockSkew clock_skew;
  int64_t memory_bytes = int64_t{2} << 30;  // for KV cache and recurrent state together
  int64_t max_seqs = 16;                    // sequences that run at once
  int64_t max_waiting = 256;                // requests that may queue
  int64_t token_budget = 2112;              // rows of a step, at least max_seqs + min(prefill_chunk, 64)
  int64_t prefill_chunk = 2048;             // tokens of one prompt in a step: 1 ‥ 64 or a multiple of 64
  std::optional<int64_t> micro_batch;       // rows of half a step from which it is halved; 0: never; absent: see Cluster
  std::optional<int64_t> max_context;       // tokens; absent: the checkpoint's
  double peer_timeout_s = 30;               // for a rank to answer within a step
  bool check_weights = false;               // refuse NaN and infinity while loading
};

struct GenerateOptions {
  std::optional<std::string> prompt, chat;  // exactly one of these
  std::vector<TokenId> token_ids;           // or this
  SamplingParams sampling;
  enum class ThinkingMode { kDefault, kOn, kOff } thinking = ThinkingMode::kDefault;
  bool json = false;
};

struct ServeOptions {
  std::string grpc_address = "127.0.0.1:50051";
  std::string http_address = "127.0.0.1:8000";     // "off": no HTTP
  std::optional<std::filesystem::path> trace_dir;  // that captures stay below; if given, also for a lost rank's last steps
  double drain_timeout_s = 30;
  AccessOptions access;
  ServerLimits limits;
};

struct DumpOptions {
  std::vector<TokenId> token_ids;
  std::filesystem::path out;
  bool taps = false;
};

struct BenchOptions {
  static constexpr int64_t kDecodePrompt = 32;  // tokens before the timed decode steps
  std::vector<int64_t> prompt_lengths{512};     // tokens
  int64_t decode_tokens = 64;
  std::vector<int64_t> batches{1};  // sequences that decode at once
  int64_t repetitions = 5;
  bool json = false;
};

/// Of `ferry quantize`; model, dtype, threads and quantization (of at least one part) are in EngineOptions.
struct QuantizeOptions {
  std::filesystem::path out;  // folder
};

/// Of `ferry inspect`; the model is in EngineOptions.
struct InspectOptions {
  bool json = false;
};

/// Of `ferry tokenize`; the model is in EngineOptions. At most one of the three; none: standard input.
struct TokenizeOptions {
  std::optional<std::string> text;
  std::filesystem::path file;
  std::vector<TokenId> ids;  // back to text
  bool bare = false;         // Tokenizer::encode, not encode_prompt
  bool json = false;
};

struct TraceOptions {
  enum class Action { kReport, kExport, kDiff, kMerge } action = Action::kReport;
  std::vector<std::filesystem::path> captures;  // folders: one, for kDiff two, for kMerge two or more
  std::filesystem::path out;                    // of kMerge
};

struct Options {
  Command command = Command::kGenerate;
  EngineOptions engine;
  GenerateOptions generate;
  ServeOptions serve;
  DumpOptions dump;
  BenchOptions bench;
  QuantizeOptions quantize;
  InspectOptions inspect;
  TokenizeOptions tokenize;
  TraceOptions trace;
};

/// What parsing decided: options to run with, or a text to print and an exit code (help, version, an error).
struct ParseResult {
  std::optional<Options> options;
  std::string message;  // one line for an error
  int exit_code = 0;    // 2 for an error
};

ParseResult parse_options(int argc, const char* const* argv);

}  // namespace ferry
