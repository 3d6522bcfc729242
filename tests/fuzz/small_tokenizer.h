#pragma once

#include <string>

namespace ferry::fuzz {

/// A whole tokenizer.json: the 256 bytes, ten merges, Qwen's regex and three added tokens.
std::string small_tokenizer_json();

}  // namespace ferry::fuzz
