#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/server/api/answer.h"
#include "runtime/server/api/reply_reader.h"
#include "runtime/server/openai/logprobs_json.h"

namespace ferry::api::openai {

/// What a chat's answer is asked to tell.
struct ChatForm {
  AnswerHead head;
  int32_t num_choices = 1;
  std::string role = "assistant";
  std::string echoed;  // comes before the content
  bool has_logprobs = false;
  bool has_prompt_logprobs = false;
  bool returns_token_ids = false;
  bool includes_reasoning = true;  // false: neither the thought nor anything that tells of its tokens
  bool names_function = false;     // the request chose the function: its call ends with "stop", as OpenAI has it
  bool requires_call = false;      // the request wants a call, whichever it is
  bool shows_special = false;      // the text has special tokens
  bool parallel_tool_calls = true;
  bool starts_in_reasoning = false;  // the prompt ends inside a thought
};

/// Objects "chat.completion" and "chat.completion.chunk" of vLLM's form; a thought is `reasoning` and `reasoning_content`.
class ChatAnswer final : public Answer {
 public:
  /// `tools` are those that may be called. The tokenizer of `names` must outlive it.
  ChatAnswer(ChatForm form, ToolSet tools, std::vector<TokenId> prompt_ids, const TokenNames& names);

  std::string chunk(std::size_t choice, const GenerateEvent& event) override;
  std::string last_chunks() override;
  void keep(std::size_t choice, const GenerateEvent& event) override;
  std::string whole() override;

 private:
  /// One of the answer's choices, as far as it is told.
  struct Choice : KeptChoice {
    explicit Choice(const Tokenizer& tokenizer, const ReplyParser::Options& options) : reader(tokenizer, options) {}

    bool has_begun = false;
    ReplyReader reader;
    // Of a whole answer:
    ReplyMessage message;
  };

  std::string begin(std::size_t choice);
  ordered_json delta_json(const std::vector<ReplyDelta>& deltas) const;
  template <class Write>
  std::string chunk_of(std::size_t choice, bool is_first, Write&& write_told) const;
  void write_head(const char* object, JsonText& json) const;
  ordered_json head_json(const char* object) const;
  ordered_json message_json(const Choice& choice) const;
  void write_choice(std::size_t choice, JsonText& json);
  std::string finish_of(const Choice& choice, FinishReason reason) const;
  bool tells_tokens() const { return form_.includes_reasoning && (form_.has_logprobs || form_.returns_token_ids); }
  UsageCount usage_of(const Choice& choice) const;
  UsageCount usage() const;

  const ChatForm form_;
  const ToolSet tools_;
  const std::vector<TokenId> prompt_ids_;
  const TokenNames names_;
  std::vector<std::unique_ptr<Choice>> choices_;  // parsers stay where they are
};

}  // namespace ferry::api::openai
