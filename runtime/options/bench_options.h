#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ferry {

struct CacheNeed;
struct EngineOptions;

struct BenchOptions {
  static constexpr int64_t kDecodePrompt = 32;  // tokens before the timed decode steps
  std::vector<int64_t> prompt_lengths{512};     // tokens
  std::vector<int64_t> depths{0};               // tokens of context behind which both are measured
  int64_t decode_tokens = 64;
  std::vector<int64_t> batches;  // sequences that decode at once; empty: 1, and for drafts those of kDraftBatches that fit
  static constexpr int64_t kDraftBatches[] = {1, 4, 16, 64};
  std::filesystem::path prompt_file;  // text that drafts are measured on; empty: openings of many texts
  std::filesystem::path routing;      // a recorded trace that takes the place of the routers' choice; empty: none
  int64_t repetitions = 5;
  int64_t recording_pairs = 0;  // of runs with and without a capture, for what recording costs; 0: that is not measured
  bool peers = false;           // say how other engines measure the same
  bool json = false;
};

void add_bench_options(CLI::App& app, BenchOptions& options);

/// What the rows ask of the caches, drafts left out.
CacheNeed cache_need_of(const BenchOptions& options);

/// Tokens of a sequence with drafts, of which some get ahead of others.
int64_t drafted_tokens(const BenchOptions& options);

/// What no single option can tell. Empty if all is well.
std::string check_together(const BenchOptions& options, const EngineOptions& engine);

/// What is asked for is what gets room: so many sequences, and memory for them where none was given.
void make_room(const BenchOptions& options, EngineOptions& engine);

}  // namespace ferry
