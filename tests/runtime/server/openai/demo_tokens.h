#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/coordinator.h"
#include "runtime/text/tokenizer.h"
#include "tests/support/source_folder.h"

namespace ferry::test {

/// The demo checkpoint's.
inline const Tokenizer& demo_tokenizer() {
  static const Tokenizer demo = Tokenizer::load(source_folder() / "launch" / "demo");
  return demo;
}

/// "The kernel is": "The", " kernel", " is".
inline const std::vector<TokenId> kKernelIs = {443, 1023, 296};
inline constexpr TokenId kThe = 443, kKernel = 1023, kIs = 296;
/// The three bytes of ☃, none of which is text by itself.
inline constexpr TokenId kSnow0 = 158, kSnow1 = 246, kSnow2 = 225;

inline TokenLogprobs told(TokenLogprob chosen, std::vector<TokenLogprob> top) {
  return {.chosen = chosen, .top = std::move(top)};
}

/// Tokens with their text and logprobs.
inline GenerateEvent tokens(std::vector<TokenId> ids, const std::string& text, std::vector<TokenLogprobs> logprobs = {}) {
  GenerateEvent event;
  event.token_ids = std::move(ids);
  event.text = text;
  event.logprobs = std::move(logprobs);
  return event;
}

inline GenerateEvent end(FinishReason reason, const std::string& text = "", const std::string& stop = "") {
  GenerateEvent event;
  event.finish_reason = reason;
  event.text = text;
  event.stop = stop;
  return event;
}

}  // namespace ferry::test
