#include "runtime/server/openai/completion_task.h"

#include <utility>

#include "runtime/server/api/answer_head.h"
#include "runtime/server/api/prompt_making.h"
#include "runtime/server/openai/completion_answer.h"
#include "runtime/server/openai/completion_request.h"

namespace ferry::api::openai {
namespace {

class CompletionTask final : public ApiTask {
 public:
  CompletionTask(CompletionRequest request, const EngineClient& engine, GrammarEngine& grammars, const ApiSettings& settings)
      : request_(std::move(request)), engine_(engine), grammars_(grammars), settings_(settings) {}

  const GenerationFields& generation() const override { return request_.generation; }
  PromptStep step(const ServerLimits& /*limits*/) const override { return {}; }

  PreparedCall prepare(const PromptTask& task) override {
    GenerationFields& fields = request_.generation;
    if (!fields.bad_words.empty()) fields.sampling.bad_words = bad_word_ids(fields.bad_words, engine_.tokenizer());
    const AnswerHead head = answer_head("cmpl-", fields, settings_);
    const std::size_t num_choices = request_.prompts.size() * static_cast<std::size_t>(fields.num_choices);
    check_num_choices(engine_, num_choices);
    PreparedCall call;
    std::vector<ToldPrompt> told;
    for (const CompletionPrompt& prompt : request_.prompts) {
      told.push_back(told_prompt(prompt, encode_prompt(engine_, prompt, fields, task)));
      for (int32_t k = 0; k < fields.num_choices; ++k) {
        call.requests.push_back(request_of(engine_, grammars_, fields, head.id, {.ids = told.back().ids, .media = nullptr},
                                           call.requests.size(), num_choices));
      }
      make_siblings(std::span(call.requests).last(static_cast<std::size_t>(fields.num_choices)));
    }
    CompletionForm form{.head = head,
                        .choices_per_prompt = fields.num_choices,
                        .echo = request_.echo,
                        .has_logprobs = fields.sampling.logprobs.has_value(),
                        .has_prompt_logprobs = request_.asks_prompt_logprobs,
                        .returns_token_ids = fields.returns_token_ids || !engine_.has_tokenizer()};  // there is no text
    call.answer = std::make_unique<CompletionAnswer>(std::move(form), std::move(told),
                                                     TokenNames::of(engine_, fields.shows_ids_as_tokens));
    return call;
  }

 private:
  /// An echo is what the engine got: of ids their text, and of a text that was cut the rest.
  ToldPrompt told_prompt(const CompletionPrompt& prompt, std::vector<TokenId> ids) const {
    if (!request_.echo) return {.text = "", .ids = std::move(ids)};
    const auto* text = std::get_if<std::string>(&prompt);
    const bool is_whole = text != nullptr && !request_.generation.truncation;
    std::string echoed = is_whole ? *text : engine_.tokenizer().decode(ids, SpecialTokens::kKeep);
    return {.text = std::move(echoed), .ids = std::move(ids)};
  }

  CompletionRequest request_;
  const EngineClient& engine_;
  GrammarEngine& grammars_;
  const ApiSettings& settings_;
};

}  // namespace

std::unique_ptr<ApiTask> read_completion_task(const HttpRequest& request, const EngineClient& engine, GrammarEngine& grammars,
                                              const ApiSettings& settings) {
  const ordered_json body = read_body(request.body, settings.limits);
  return std::make_unique<CompletionTask>(parse_completion(body, request, settings), engine, grammars, settings);
}

}  // namespace ferry::api::openai
