#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

/// Whether text made from token ids shows the special ones, such as <|im_end|>.
enum class SpecialTokens { kKeep, kSkip };

/// What ends the encoding of a text before the text's end.
struct EncodeLimits {
  size_t max_tokens = SIZE_MAX;    // of the whole text; one more is an error, found as soon as it is certain
  std::string allowed = "";        // for that error, max_tokens and why; empty: the number alone
  std::function<void()> check_in;  // called now and then, every few milliseconds; what it throws ends the encoding
};

/// The checkpoint's tokenizer: byte-level BPE as its tokenizer.json describes it, with the ids of Hugging Face's `tokenizers`
/// (0.23) for every text.
///
/// Encoding: malformed UTF-8 becomes U+FFFD; added tokens (<|im_start|>, <think>, …) are cut out of the raw text, at each place
/// the longest one; the rest is composed (NFC) where the file says so, cut into pieces by the file's regex, and each piece's
/// bytes are merged by rank. Text from users can contain control tokens: they count as such here.
///
///     const Tokenizer tokenizer = Tokenizer::load("/models/qwen");
///     const std::vector<TokenId> prompt = tokenizer.encode_prompt("Hello, world!");
///     std::string text = tokenizer.decode(prompt, SpecialTokens::kSkip);
///
/// Every const method may be called from many threads at once.
class Tokenizer {
 public:
  /// Reads tokenizer.json, and further added tokens from `added_tokens_decoder` in tokenizer_config.json if that is there.
  /// Throws Error{kNotFound} without tokenizer.json, {kInvalidArgument} for a file that contradicts itself, {kUnimplemented}
  /// for a tokenizer of another kind (not a BPE, byte_fallback, another normalizer, pre-tokenizer, post-processor or decoder).
  static Tokenizer load(const std::filesystem::path& checkpoint_dir);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The token ids of `text` and nothing before or after them: for a conversation that a chat template wrote, which writes its
  /// own control tokens. Empty for empty text. Time is n log n at worst, whatever the text. Throws Error{kInvalidArgument} for
  /// more than limits.max_tokens, {kResourceExhausted} if the regex engine reaches a limit, and what limits.check_in throws.
  std::vector<TokenId> encode(std::string_view text, const EncodeLimits& limits = {}) const;

  /// The same between the tokens that the file's post-processor puts around a text, such as <|startoftext|> before it: for
  /// plain text to continue. (`tokenizers` and transformers call this add_special_tokens.) Many files add none.
  std::vector<TokenId> encode_prompt(std::string_view text, const EncodeLimits& limits = {}) const;

  /// The bytes of the longest token: text of more bytes than this times n, once composed, has more than n tokens.
  size_t longest_token_bytes() const;

  /// The text of `token_ids`: their bytes put together, then each maximal malformed UTF-8 subpart replaced by U+FFFD. Ids that
  /// name no token (padding rows of lm_head) add nothing.
  std::string decode(std::span<const TokenId> token_ids, SpecialTokens special) const;

  /// The bytes that a token stands for, perhaps a part of a character; empty if the id names no token. Valid as long as the
  /// tokenizer.
  std::string_view token_bytes(TokenId token_id) const;

  /// True for an added token whose "special" flag is set. <think> and <tool_call> are added tokens, but not special.
  bool is_special(TokenId token_id) const;

  /// True for a token that is cut out of text before anything else, special or not.
  bool is_added(TokenId token_id) const;

  /// 1 + the largest id that exists: logits from here on belong to padding rows and must not be sampled.
  int32_t size() const;

  /// The token with exactly this text (or these bytes): an added token if there is one, else one of the vocabulary.
  std::optional<TokenId> id_of(std::string_view content) const;

 private:
  struct Data;
  class CheckIn;
  class Encoding;
  explicit Tokenizer(std::unique_ptr<const Data> data);
  std::vector<TokenId> encode_between(std::span<const TokenId> prefix, std::string_view text, std::span<const TokenId> suffix,
                                      const EncodeLimits& limits) const;
  std::unique_ptr<const Data> data_;
};

}  // namespace ferry
