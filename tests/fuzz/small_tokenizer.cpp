#include "tests/fuzz/small_tokenizer.h"

#include <nlohmann/json.hpp>

#include "tests/fuzz/memory_folder.h"

namespace ferry::fuzz {
namespace {

using nlohmann::json;

constexpr const char* kSplitRegex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool is_shown_as_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

/// Byte-level BPE's spelling of a byte: itself as a character, or one from U+0100 on.
std::string spelling(int byte, int& num_replaced) {
  const int character = is_shown_as_itself(byte) ? byte : 0x100 + num_replaced++;
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

Tokenizer loaded_from(const std::string& tokenizer_json) {
  const MemoryFolder folder;
  folder.write("tokenizer.json", tokenizer_json);
  return Tokenizer::load(folder.path());
}

}  // namespace

std::string small_tokenizer_json() {
  json vocabulary = json::object();
  int num_replaced = 0;
  for (int byte = 0; byte < 256; ++byte) vocabulary[spelling(byte, num_replaced)] = byte;
  json merges = json::array();
  for (const auto& [left, right] : {std::pair("h", "e"),
                                    {"t", "he"},
                                    {"i", "n"},
                                    {"in", "g"},
                                    {"Ġ", "the"},
                                    {"a", "n"},
                                    {"an", "d"},
                                    {"Ġ", "and"},
                                    {"e", "r"},
                                    {"o", "n"}}) {
    merges.push_back({left, right});
    vocabulary[std::string(left) + right] = vocabulary.size();
  }
  json added = json::array();
  for (const char* content : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    added.push_back({{"id", vocabulary.size() + added.size()}, {"content", content}, {"special", true}});
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", kSplitRegex}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json root = {{"version", "1.0"},
                     {"added_tokens", added},
                     {"normalizer", {{"type", "NFC"}}},
                     {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
                     {"post_processor", byte_level},
                     {"decoder", byte_level},
                     {"model", {{"type", "BPE"}, {"byte_fallback", false}, {"vocab", vocabulary}, {"merges", merges}}}};
  return root.dump();
}

const Tokenizer& small_tokenizer() {
  static const Tokenizer tokenizer = loaded_from(small_tokenizer_json());
  return tokenizer;
}

const Tokenizer& small_tokenizer_with_markers() {
  static const Tokenizer tokenizer = [] {
    json root = json::parse(small_tokenizer_json());
    json& added = root["added_tokens"];
    for (const char* content : {"<think>", "</think>", "<tool_call>", "</tool_call>"})
      added.push_back({{"id", root["model"]["vocab"].size() + added.size()}, {"content", content}, {"special", false}});
    return loaded_from(root.dump());
  }();
  return tokenizer;
}

}  // namespace ferry::fuzz
