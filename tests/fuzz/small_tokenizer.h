#pragma once

#include <string>

#include "runtime/text/tokenizer.h"

namespace ferry::fuzz {

/// A whole tokenizer.json: the 256 bytes, ten merges, Qwen's regex and three added tokens.
std::string small_tokenizer_json();
/// Loaded from it, once.
const Tokenizer& small_tokenizer();
/// The same with <think>, <tool_call> and their ends as tokens.
const Tokenizer& small_tokenizer_with_markers();

}  // namespace ferry::fuzz
