#include "launch/bench_peers.h"

#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using nlohmann::ordered_json;

std::string text(int64_t number) { return std::to_string(number); }

/// As a POSIX shell takes it for one word.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

bool is_plain(const std::string& weights) { return weights == "bf16" || weights == "f32"; }

/// llama.cpp's type that takes as many bits.
std::string gguf_type(const std::string& weights) {
  if (weights == "f32") return "F32";
  if (weights == "bf16") return "BF16";
  return weights.find("w4") != std::string::npos || weights.find("i4") != std::string::npos ? "Q4_0" : "Q8_0";
}

std::string gguf_name(const PeerSetup& setup) { return quoted("model-" + gguf_type(setup.weights) + ".gguf"); }

PeerCommand llama_cpp(const PeerSetup& setup, const BenchCase& what) {
  const std::string common =
      " -m " + gguf_name(setup) + " -t " + text(setup.threads) + (setup.is_on_device ? " -ngl 99" : " -ngl 0");
  const std::string bench = "llama-bench" + common + " -r " + text(setup.repetitions) + " -o jsonl";
  PeerCommand peer{.engine = "llama.cpp", .commands = {}, .figure = "median of samples_ts"};
  if (what.phase == Phase::kPrefill) {
    peer.commands = {bench + " -p " + text(what.size) + " -n 0 -d " + text(what.depth)};
    return peer;
  }
  const int64_t past = what.depth + setup.decode_prompt;
  if (what.size == 1) {
    peer.commands = {bench + " -p 0 -n " + text(setup.decode_tokens) + " -d " + text(past)};
    return peer;
  }
  peer.commands = {"llama-batched-bench" + common + " -c " + text(what.size * (past + setup.decode_tokens)) + " -npp " +
                   text(past) + " -ntg " + text(setup.decode_tokens) + " -npl " + text(what.size) + " --output-format jsonl"};
  peer.figure = "speed_tg, of one run: median of " + text(setup.repetitions) + " of them";
  return peer;
}

/// It times a whole call: what a row measures is the difference of two.
PeerCommand vllm(const PeerSetup& setup, const BenchCase& what) {
  const bool is_prefill = what.phase == Phase::kPrefill;
  const int64_t past = what.depth + (is_prefill ? 0 : setup.decode_prompt);
  const int64_t longest = past + (is_prefill ? what.size + 1 : setup.decode_tokens + 1);
  const auto latency = [&](int64_t input_tokens, int64_t output_tokens) {
    const std::string place = setup.is_on_device ? "" : "VLLM_CPU_OMP_THREADS_BIND=0-" + text(setup.threads - 1) + " ";
    return place + "vllm bench latency --model " + quoted(setup.model.string()) + " --dtype " +
           (setup.weights == "f32" ? "float32" : "bfloat16") + " --no-enable-prefix-caching --max-model-len " + text(longest) +
           " --batch-size " + text(is_prefill ? 1 : what.size) + " --input-len " + text(input_tokens) + " --output-len " +
           text(output_tokens) + " --num-iters-warmup 2 --num-iters " + text(setup.repetitions);
  };
  PeerCommand peer{.engine = "vLLM", .commands = {}, .figure = ""};
  if (!is_prefill) {
    peer.commands = {latency(past, setup.decode_tokens + 1), latency(past, 1)};
    peer.figure = text(what.size * setup.decode_tokens) + " / (seconds of the first - seconds of the second)";
  } else if (what.depth > 0) {
    peer.commands = {latency(past + what.size, 1), latency(past, 1)};
    peer.figure = text(what.size) + " / (seconds of the first - seconds of the second)";
  } else {
    peer.commands = {latency(what.size, 1)};
    peer.figure = text(what.size) + " / seconds";
  }
  return peer;
}

/// What makes the file that llama.cpp reads. Quantised checkpoints start from the one that they were made of.
std::vector<std::string> gguf_commands(const PeerSetup& setup) {
  const std::string type = gguf_type(setup.weights);
  const std::string source = is_plain(setup.weights) ? quoted(setup.model.string()) : "CHECKPOINT";
  if (type == "F32") return {"convert_hf_to_gguf.py " + source + " --outtype f32 --outfile " + gguf_name(setup)};
  std::vector<std::string> commands{"convert_hf_to_gguf.py " + source + " --outtype bf16 --outfile model-BF16.gguf"};
  if (type != "BF16") commands.push_back("llama-quantize model-BF16.gguf " + gguf_name(setup) + " " + type);
  return commands;
}

}  // namespace

std::vector<PeerCommand> peer_commands(const PeerSetup& setup, const BenchCase& what) {
  std::vector<PeerCommand> peers{llama_cpp(setup, what)};
  if (is_plain(setup.weights)) peers.push_back(vllm(setup, what));
  return peers;
}

std::vector<std::string> peer_lines(const PeerSetup& setup, const std::vector<BenchRow>& rows) {
  std::vector<std::string> lines{
      "", "# The same with other engines, in turn with these rows on a quiet machine.",
      "# llama.cpp's file" + std::string(is_plain(setup.weights) ? ":" : ", of the checkpoint before it was quantised:")};
  for (const std::string& command : gguf_commands(setup)) lines.push_back(command);
  for (const BenchRow& row : rows) {
    for (const PeerCommand& peer : peer_commands(setup, row.what)) {
      lines.push_back("# " + row.what.name() + ", " + peer.engine + ": " + peer.figure);
      lines.insert(lines.end(), peer.commands.begin(), peer.commands.end());
    }
  }
  if (!is_plain(setup.weights)) lines.push_back("# vLLM: none, as it reads no weights of " + setup.weights);
  return lines;
}

ordered_json peers_json(const PeerSetup& setup, const std::vector<BenchRow>& rows) {
  ordered_json list = ordered_json::array();
  for (const BenchRow& row : rows) {
    for (const PeerCommand& peer : peer_commands(setup, row.what)) {
      list.push_back({{"row", row.what.name()}, {"engine", peer.engine}, {"commands", peer.commands}, {"figure", peer.figure}});
    }
  }
  return {{"gguf", gguf_commands(setup)}, {"rows", list}};
}

}  // namespace ferry
