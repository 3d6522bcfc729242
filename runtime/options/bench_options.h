#pragma once

#include <cstdint>
#include <vector>

namespace CLI {
class App;
}

namespace ferry {

struct EngineOptions;

struct BenchOptions {
  static constexpr int64_t kDecodePrompt = 32;  // tokens before the timed decode steps
  std::vector<int64_t> prompt_lengths{512};     // tokens
  int64_t decode_tokens = 64;
  std::vector<int64_t> batches{1};  // sequences that decode at once
  int64_t repetitions = 5;
  bool json = false;
};

void add_bench_options(CLI::App& app, BenchOptions& options);

/// What is asked for is what gets room.
void make_room(const BenchOptions& options, EngineOptions& engine);

}  // namespace ferry
