#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/server/api/api_task.h"
#include "runtime/server/api/generation_fields.h"
#include "runtime/server/api/settings.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/reply/reply_parser.h"
#include "runtime/text/reply/tool_set.h"

namespace ferry {
class EngineClient;
class GrammarEngine;
}  // namespace ferry

// What every API that has an assistant answer makes of its requests: each has a reader, which ends in a Conversation, and a
// writer, which is the Answer of it. What lies between is here.

namespace ferry::api {

/// What of a request makes a prompt: of the routes that answer, and of /tokenize and the like with messages.
struct ChatPrompt {
  ChatInput input;
  std::vector<std::string> picture_urls;
  ToolSet tools;
};

/// A conversation that wants the assistant's next turn.
struct Conversation {
  GenerationFields generation;
  ChatPrompt prompt;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;  // false: calls behind the first are dropped
};

/// What an answer takes replies apart with.
struct ReplyReading {
  ToolSet tools;  // that may be called
  std::vector<TokenId> prompt_ids;
  bool parallel_tool_calls = true;
  bool starts_in_reasoning = false;  // the prompt ends inside a thought
  bool shows_special = false;        // the text has special tokens
  bool closes_cut_calls = true;      // see ReplyParser::Options

  /// They borrow `tools`.
  ReplyParser::Options options() const;
};

/// Makes the answer to a conversation whose prompt is made. Its generation is as it was read.
using MakeAnswer = std::function<std::unique_ptr<Answer>(const Conversation& conversation, ReplyReading reading)>;

/// The call that a conversation is. `answer_prefix` begins its requests' id, and its generation's request_id follows. What it
/// borrows must outlive the task. Throws ApiError.
std::unique_ptr<ApiTask> conversation_task(Conversation conversation, std::string answer_prefix, MakeAnswer make_answer,
                                           const EngineClient& engine, GrammarEngine& grammars);

}  // namespace ferry::api
