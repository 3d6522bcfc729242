#pragma once

#include <string>

#include "runtime/engine.h"
#include "runtime/text/chat_template.h"

namespace ferry {

/// For a command that answers requests, before the weights are read: prints on stderr, in lines that begin with `who`, what
/// requests will be refused since the checkpoint has no tokenizer or no template. Throws Error for a tokenizer that is there
/// and cannot be used.
void check_text(const Engine& engine, const ChatTemplate& chat_template, const std::string& who);

}  // namespace ferry
