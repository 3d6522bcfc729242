#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/base/text_file.h"
#include "runtime/text/tokenizer.h"

namespace ferry {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{16} << 20;  // of one call; a long word takes ninety times its bytes of memory

/// All of standard input. Throws Error{kInvalidArgument} for more than kMaxTextBytes.
std::string read_input() {
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
    text.append(buffer.data(), got);
    if (static_cast<int64_t>(text.size()) > kMaxTextBytes)
      throw_invalid("standard input has more than " + std::to_string(kMaxTextBytes) + " bytes, which is what is allowed");
  }
  return text;
}

std::string text_of(const TokenizeOptions& options) {
  if (options.text) return *options.text;
  return options.file.empty() ? read_input() : read_text_file(options.file, kMaxTextBytes);
}

std::vector<TokenId> encode(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  const std::string text = text_of(options);
  return options.bare ? tokenizer.encode(text) : tokenizer.encode_prompt(text);
}

/// As JSON; bytes that are no character by themselves, as tokens may have, become U+FFFD.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// One line, printed as it goes: the ids of a long text are many.
void print_json(const std::vector<TokenId>& ids, const Tokenizer& tokenizer, const std::optional<std::string>& decoded) {
  const char* before = "";
  std::printf("{\"ids\":[");
  for (const TokenId id : ids) std::printf("%s%d", std::exchange(before, ","), id);
  before = "";
  std::printf("],\"pieces\":[");
  for (const TokenId id : ids) std::printf("%s%s", std::exchange(before, ","), json_text(tokenizer.token_bytes(id)).c_str());
  std::printf("]");
  if (decoded) std::printf(",\"text\":%s", json_text(*decoded).c_str());
  std::printf("}\n");
}

void check_ids(const std::vector<TokenId>& ids, const Tokenizer& tokenizer) {
  for (const TokenId id : ids) {
    if (id < 0 || id >= tokenizer.size())
      throw_invalid("--ids: " + std::to_string(id) + " is no token; allowed: 0 to " + std::to_string(tokenizer.size() - 1));
  }
}

}  // namespace

int run_tokenize(const Options& options) {
  const TokenizeOptions& o = options.tokenize;
  const Tokenizer tokenizer = Tokenizer::load(options.engine.model);
  check_ids(o.ids, tokenizer);
  const std::vector<TokenId> ids = o.ids.empty() ? encode(o, tokenizer) : o.ids;
  std::optional<std::string> decoded;
  if (!o.ids.empty()) decoded = tokenizer.decode(ids, SpecialTokens::kKeep);
  if (o.json) {
    print_json(ids, tokenizer, decoded);
  } else if (decoded) {
    std::printf("%s\n", decoded->c_str());
  } else {
    for (const TokenId id : ids) std::printf("%d\t%s\n", id, json_text(tokenizer.token_bytes(id)).c_str());
  }
  return 0;
}

}  // namespace ferry
