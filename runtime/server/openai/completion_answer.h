#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/server/api/answer.h"
#include "runtime/server/openai/logprobs_json.h"

namespace ferry::api::openai {

/// What a completion's answer is asked to tell.
struct CompletionForm {
  AnswerHead head;
  int32_t choices_per_prompt = 1;
  bool echo = false;
  bool has_logprobs = false;         // of the completion, and with echo of the prompt
  bool has_prompt_logprobs = false;  // as a list of their own
  bool returns_token_ids = false;
};

/// A prompt as it was submitted.
struct ToldPrompt {
  std::string text;
  std::vector<TokenId> ids;
};

/// Objects "text_completion" of vLLM's form.
class CompletionAnswer final : public Answer {
 public:
  /// The tokenizer of `names` must outlive it.
  CompletionAnswer(CompletionForm form, std::vector<ToldPrompt> prompts, const TokenNames& names);

  std::string chunk(std::size_t choice, const GenerateEvent& event) override;
  std::string last_chunks() override;
  void keep(std::size_t choice, const GenerateEvent& event) override;
  std::string whole() override;

 private:
  /// One of the answer's choices, as far as it is told.
  struct Choice : KeptChoice {
    explicit Choice(const TokenNames& names) : logprobs(names) {}

    bool has_begun = false;
    int64_t num_tokens = 0;
    int64_t cached_tokens = 0;
    CompletionLogprobs logprobs;
    // Of a whole answer:
    std::string text;
  };

  const ToldPrompt& prompt_of(std::size_t choice) const;
  void count(Choice& choice, const GenerateEvent& event);
  void write_logprobs(std::size_t choice, bool tells_prompt, ToldPositions told, JsonText& json);
  void write_ids(const char* name, std::span<const TokenId> ids, JsonText& json) const;
  void write_head(JsonText& json) const;
  ordered_json chunk_head() const;
  UsageCount usage() const;
  void write_choice(std::size_t choice, JsonText& json);

  const CompletionForm form_;
  const std::vector<ToldPrompt> prompts_;
  const TokenNames names_;
  std::vector<Choice> choices_;
};

}  // namespace ferry::api::openai
