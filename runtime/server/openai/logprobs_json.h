#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/schedule/request.h"
#include "runtime/server/api/json_text.h"
#include "runtime/server/api/token_names.h"

// Logprobs as values of an answer's JSON. They are most of a large answer, so they are written as text at once.

namespace ferry::api::openai {

/// {"content":[{"token","logprob","bytes","top_logprobs":[…]}, …]}: the likeliest tokens of a position in order, then its own
/// if it is not among them and any were asked for. Bytes are a token's true ones, also where it is a part of a character.
void write_chat_logprobs(std::span<const TokenLogprobs> positions, const TokenNames& names, JsonText& json);

/// [null, {"ID":{"logprob","rank","decoded_token"}, …}, …]: of the prompt's tokens; the first has none. Its own comes first.
void write_prompt_logprobs(std::span<const TokenLogprobs> positions, const TokenNames& names, JsonText& json);

/// Positions of a completion's logprobs: of the prompt, where it is echoed, and of the completion.
struct ToldPositions {
  std::optional<TokenId> first;  // of an echoed prompt, which has no logprob
  std::span<const TokenLogprobs> prompt, completion;
};

/// {"text_offset","token_logprobs","tokens","top_logprobs"} of a completion, piece by piece where its answer is streamed.
/// Offsets count the characters of tokens' names, over all pieces.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const TokenNames& names) : names_(names) {}

  /// The next piece.
  void write(const ToldPositions& told, JsonText& json);

 private:
  void write_top(const TokenLogprobs& position, JsonText& json) const;

  TokenNames names_;
  int64_t offset_ = 0;  // characters
};

/// Bytes of the text that these positions become, about.
std::size_t logprobs_text_bytes(std::span<const TokenLogprobs> positions);

}  // namespace ferry::api::openai
