#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

/// A token with its bytes: byte-level spelling undone ("Ġthe" is " the").
struct VocabularyEntry {
  TokenId token_id = -1;
  std::string bytes;
  bool byte_level = true;  // false: no byte-level spelling, so no text is cut into this token; the bytes are the spelling's own
};

/// A token that is cut out of text before that is split into pieces.
struct AddedToken {
  TokenId token_id = -1;
  std::string content;  // UTF-8, never empty: what is looked for
  std::string bytes;    // what decoding makes of it: the content, read as a byte-level spelling where it is one
  bool special = false;
  bool normalized = false;  // looked for in the normalized text, not in the raw one; the content is normalized, too
};

/// Two tokens that become one. Earlier in the list is merged first.
struct MergeRule {
  TokenId left = -1;
  TokenId right = -1;
  TokenId merged = -1;
};

/// What a checkpoint's tokenizer files say, checked: every id is in [0, kMaxTokenId] and names one token, each of the 256 bytes
/// has a token, every merge is between tokens, what the post-processor adds are tokens.
struct TokenizerFile {
  std::vector<VocabularyEntry> vocabulary;
  std::vector<AddedToken> added_tokens;
  std::vector<MergeRule> merges;
  std::vector<TokenId> byte_tokens;  // [256], the token of each single byte
  std::string split_regex;           // Oniguruma's syntax
  bool normalize_nfc = false;
  bool ignore_merges = false;   // a piece that is a token as a whole becomes that token, whatever the merges make of it
  std::vector<TokenId> prefix;  // what the post-processor puts before a text, such as <|startoftext|>
  std::vector<TokenId> suffix;  // and after it
};

inline constexpr TokenId kMaxTokenId = (1 << 24) - 1;  // a larger id is taken for a damaged file

/// Reads tokenizer.json and tokenizer_config.json; errors as Tokenizer::load.
TokenizerFile read_tokenizer_file(const std::filesystem::path& checkpoint_dir);

/// `file` with the added tokens of a tokenizer_config.json, which may not contradict it.
TokenizerFile with_tokenizer_config(TokenizerFile file, const std::filesystem::path& config_path);

}  // namespace ferry
