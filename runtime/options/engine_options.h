#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "moe/combine_mode.h"
#include "runtime/base/types.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/fault/fault_plan.h"
#include "runtime/options/device_choice.h"
#include "runtime/options/elastic_options.h"
#include "runtime/options/media_options.h"
#include "runtime/options/placement_options.h"
#include "runtime/options/sharing_options.h"
#include "runtime/schedule/policy.h"
#include "runtime/schedule/speculation.h"
#include "runtime/trace/clock_skew.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ferry {

/// What carries rows between ranks: kAuto sockets, kGroup whatever a group that is there already runs on.
enum class TransportKind { kAuto, kMpi, kGloo, kGroup };

/// Sequences that must fit the caches at once. Where nobody has said how much memory they may take, they take what that needs.
struct CacheNeed {
  int64_t num_sequences = 0;   // 0: nothing is needed
  int64_t first_tokens = 0;    // of the longest one
  int64_t further_tokens = 0;  // of each other one
  bool memory_is_given = false;
};

/// What every rank of a job needs; the same command line reaches all of them. Parsed and checked once, in parse_options.
struct EngineOptions {
  static constexpr int64_t kMaxSeqs = 65536;  // of max_seqs and of a bench's batch

  std::filesystem::path model;  // checkpoint folder
  std::optional<DType> dtype;   // of the run; absent: the checkpoint's
  int32_t threads = 0;          // per rank; 0: the cores this rank can have (see default_threads)
  TransportKind transport = TransportKind::kAuto;
  std::string net_interface;                 // of gloo: name or address; empty: chosen
  DeviceChoice device;                       // what computes
  std::filesystem::path cache_folder;        // for what a GPU's driver makes of shaders, from run to run; empty: none
  std::string kernels = "auto";              // of the CPU: auto, avx512, avx2, ref
  std::string matmul = "auto";               // likewise: auto, onednn, ref, or own: amx, avx512_bf16, avx512_vnni, avx512, avx2
  std::optional<Quantization> quantization;  // of the weights, while loading; absent: none, or what a packed folder holds
  CombineMode combine = CombineMode::kExact;  // who adds up the experts' rows
  std::string profile = "0";          // spans recorded while no capture runs: off, 0 (steps), 1 (operators), 2 (threads)
  std::filesystem::path expert_load;  // file for what was asked of each expert, from run to run; empty: none
  std::filesystem::path trace;        // of generate and bench: folder for a capture; empty: none
  bool trace_routing = false;         // it holds what routers chose, too
  ClockSkew clock_skew;
  int64_t memory_bytes = int64_t{2} << 30;  // for KV cache and recurrent state together
  std::optional<DType> kv_cache_dtype;      // bf16 or i8; absent: the run's
  CacheNeed cache_need;                     // may make that more
  bool shares_blocks = false;               // of commands whose requests run side by side; see MemoryRequest
  int64_t swap_bytes =
      int64_t{1} << 30;  // on the host, for keys and values of preempted sequences, at most as large as the KV cache
  std::optional<int64_t> prefix_cache_bytes;  // on the host, for recurrent states behind what prompts have in common; 0: no
                                              // prefix cache; absent: of a server half of memory_bytes, of others 0
  int64_t prefix_file_bytes = 0;              // of a file for what of the prefix cache memory has no room for; 0: none
  std::filesystem::path prefix_file_folder = "/var/tmp";  // where it is made
  int64_t max_seqs = 16;                                  // sequences that run at once
  int64_t max_waiting = 256;                              // requests that may queue
  int64_t token_budget = 2112;                            // rows of a step, at least max_seqs + min(prefill_chunk, 64)
  int64_t prefill_chunk = 2048;                           // tokens of one prompt in a step: 1 ‥ 64 or a multiple of 64
  std::optional<int64_t> micro_batch;  // rows of half a step from which it is halved; 0: never; absent: see Cluster
  std::optional<int64_t> max_context;  // tokens; absent: the checkpoint's
  Speculation speculation;             // drafts; by default none, of commands that have the option auto
  PolicyOptions policy;
  MediaOptions media;
  PlacementOptions placement;
  ElasticOptions elastic;            // of commands that serve
  SharingOptions sharing;            // likewise
  std::vector<PlannedFault> faults;  // that ranks are to have
  double peer_timeout_s = 30;        // for a rank to answer within a step
  bool check_weights = false;        // refuse NaN, infinity and what differs from its checksum while loading
  bool lm_head_screen = false;       // greedy tokens are found with a copy of lm_head in 8 bits
};

/// "demo" names the checkpoint that comes with Ferry.
std::filesystem::path checkpoint_named(const std::string& model);

/// --model.
void add_model_folder(CLI::App& app, EngineOptions& options);
/// --dtype.
void add_dtype(CLI::App& app, EngineOptions& options);
/// What every command that reads weights takes.
void add_model_options(CLI::App& app, EngineOptions& options);
/// --kernels and --matmul.
void add_kernels(CLI::App& app, EngineOptions& options);
/// --prefill-chunk.
void add_prefill_chunk(CLI::App& app, EngineOptions& options);
/// --kv-cache-dtype.
void add_kv_cache_dtype(CLI::App& app, EngineOptions& options);
/// --quantize.
CLI::Option* add_quantization(CLI::App& app, EngineOptions& options, const char* help);
/// What every command that runs the model takes.
void add_engine_options(CLI::App& app, EngineOptions& options);
/// What a worker that joins a job takes; the rest is as its coordinator says.
void add_worker_options(CLI::App& app, EngineOptions& options);
/// --speculate of commands that serve, by default auto, and of one that measures, by default none.
void add_speculation(CLI::App& app, EngineOptions& options);
void add_measured_speculation(CLI::App& app, EngineOptions& options);
/// --prefix-cache-memory, --prefix-cache-disk and --prefix-cache-folder.
void add_prefix_cache(CLI::App& app, EngineOptions& options);
/// --lm-head-screen.
void add_lm_head_screen(CLI::App& app, EngineOptions& options);
/// --expert-load.
void add_expert_load(CLI::App& app, EngineOptions& options);
/// --trace and --trace-routing.
void add_capture_folder(CLI::App& app, EngineOptions& options);

/// What no single option can tell. Empty if all is well.
std::string check_together(const EngineOptions& options);

}  // namespace ferry
