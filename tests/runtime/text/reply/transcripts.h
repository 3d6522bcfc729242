#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "runtime/text/reply/reply_parser.h"

namespace ferry {

/// For messages of failed comparisons.
void PrintTo(const ReplyMessage& message, std::ostream* out);

}  // namespace ferry

namespace ferry::test {

/// A reply as a model wrote it, and what it means.
struct Transcript {
  const char* name;
  bool starts_in_reasoning;
  const char* text;  // <think>, <tool_call> and their ends are tokens where the vocabulary has them
  ReplyMessage expected;
};

/// Of the tools that transcript_tools() has.
std::span<const Transcript> transcripts();
const ToolSet& transcript_tools();

}  // namespace ferry::test
