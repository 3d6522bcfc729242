#include "launch/text_check.h"

#include <cstdio>

#include "runtime/base/error.h"

namespace ferry {

void check_text(const Engine& engine, const ChatTemplate& chat_template, const std::string& who) {
  require_usable(engine.loaded_tokenizer());
  if (engine.tokenizer() == nullptr) {
    std::fprintf(stderr, "ferry: %sno tokenizer: requests have to give token ids, and answers give token ids without text\n",
                 who.c_str());
  } else if (!chat_template.unsupported_reason().empty()) {
    std::fprintf(stderr, "ferry: %schats are refused: %s\n", who.c_str(), one_line(chat_template.unsupported_reason()).c_str());
  }
}

}  // namespace ferry
