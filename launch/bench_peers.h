#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/bench_row.h"

// Command lines with which other engines measure what rows of `ferry bench` do: llama.cpp's llama-bench and llama-batched-bench
// (release 0.7.0) and vLLM's `vllm bench latency` (0.15). They are printed, not run.

namespace ferry {

/// The run whose rows are to be measured elsewhere.
struct PeerSetup {
  std::filesystem::path model;  // checkpoint folder
  std::string weights;          // as quantization_name() has them, or the dtype's name
  int threads = 1;
  bool is_on_device = false;  // a GPU computes
  int64_t decode_tokens = 0;  // of each sequence
  int64_t decode_prompt = 0;  // tokens of its own that each has before, behind the row's depth
  int64_t repetitions = 0;
};

/// How another engine measures a row.
struct PeerCommand {
  std::string engine;  // "llama.cpp", "vLLM"
  std::vector<std::string> commands;
  std::string figure;  // how the row's tokens/s follow from what the commands print
};

/// Of vLLM nothing where the weights are codes that Ferry made: it cannot read them.
std::vector<PeerCommand> peer_commands(const PeerSetup& setup, const BenchCase& what);

/// All rows, with what makes the file that llama.cpp reads, a line each.
std::vector<std::string> peer_lines(const PeerSetup& setup, const std::vector<BenchRow>& rows);
nlohmann::ordered_json peers_json(const PeerSetup& setup, const std::vector<BenchRow>& rows);

}  // namespace ferry
