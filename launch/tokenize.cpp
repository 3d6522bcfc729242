#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/base/text_file.h"
#include "runtime/text/tokenizer.h"

namespace ferry {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{256} << 20;  // of one call

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

/// As JSON on one line; bytes that are no character by themselves, as tokens may have, become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
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
  nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
  for (const TokenId id : ids) pieces.push_back(std::string(tokenizer.token_bytes(id)));
  const std::string decoded = o.ids.empty() ? "" : tokenizer.decode(ids, SpecialTokens::kKeep);
  if (o.json) {
    nlohmann::ordered_json object{{"ids", ids}, {"pieces", pieces}};
    if (!o.ids.empty()) object["text"] = decoded;
    std::printf("%s\n", json_text(object).c_str());
  } else if (!o.ids.empty()) {
    std::printf("%s\n", decoded.c_str());
  } else {
    for (std::size_t i = 0; i < ids.size(); ++i) std::printf("%d\t%s\n", ids[i], json_text(pieces[i]).c_str());
  }
  return 0;
}

}  // namespace ferry
