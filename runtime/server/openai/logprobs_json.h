#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/schedule/request.h"
#include "runtime/server/api/token_names.h"

namespace ferry::api::openai {

using nlohmann::ordered_json;

/// {"content":[{"token","logprob","bytes","top_logprobs":[…]}, …]}: the likeliest tokens of a position in order, then its own
/// if it is not among them and any were asked for. Bytes are a token's true ones, also where it is a part of a character.
ordered_json chat_logprobs(std::span<const TokenLogprobs> positions, const TokenNames& names);

/// [null, {"ID":{"logprob","rank","decoded_token"}, …}, …]: of the prompt's tokens; the first has none. Its own comes first.
ordered_json prompt_logprobs(std::span<const TokenLogprobs> positions, const TokenNames& names);

/// {"text_offset","token_logprobs","tokens","top_logprobs"} of the tokens that are added, piece by piece where an answer is
/// streamed. Offsets count the characters of tokens' names, over all pieces.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const TokenNames& names) : names_(names) {}

  /// The first token of a prompt, before which nothing tells of it.
  void add_first(TokenId id);
  void add(const TokenLogprobs& position);
  /// What was added since the last time.
  ordered_json take();

 private:
  void add_name(TokenId id);

  TokenNames names_;
  int64_t offset_ = 0;  // characters
  ordered_json offsets_ = ordered_json::array(), logprobs_ = ordered_json::array(), tokens_ = ordered_json::array(),
               tops_ = ordered_json::array();
};

}  // namespace ferry::api::openai
