#include "runtime/server/openai/chat_task.h"

#include <utility>

#include "runtime/server/openai/answer_head.h"
#include "runtime/server/openai/chat_answer.h"
#include "runtime/server/openai/chat_request.h"
#include "runtime/server/openai/prompt_making.h"
#include "runtime/text/reply/reply_markers.h"

namespace ferry::openai {
namespace {

class ChatTask final : public ApiTask {
 public:
  ChatTask(ChatRequest request, const EngineClient& engine, GrammarEngine& grammars, const ApiSettings& settings)
      : request_(std::move(request)), engine_(engine), grammars_(grammars), settings_(settings) {}

  const GenerationFields& generation() const override { return request_.generation; }
  bool has_media() const override { return !request_.prompt.picture_urls.empty(); }

  PreparedCall prepare(const PromptTask& task) override {
    GenerationFields& fields = request_.generation;
    fields.sampling.bad_words = bad_word_ids(fields.bad_words, engine_.tokenizer());
    check_num_choices(engine_, static_cast<std::size_t>(fields.num_choices));
    const MediaPrompt prompt = encode_chat(engine_, request_.prompt, fields, task);
    ChatForm form = make_form(prompt.ids);
    PreparedCall call;
    for (std::size_t i = 0; i < static_cast<std::size_t>(fields.num_choices); ++i) {
      call.requests.push_back(
          request_of(engine_, grammars_, fields, form.head.id, prompt, i, static_cast<std::size_t>(fields.num_choices)));
      if (i > 0) call.requests.back().sampling.prompt_logprobs.reset();  // the answer has them once
    }
    make_siblings(call.requests);
    const bool may_call = request_.tool_choice.kind != ToolChoice::Kind::kNone;
    call.answer = std::make_unique<ChatAnswer>(std::move(form), may_call ? std::move(request_.prompt.tools) : ToolSet(),
                                               prompt.ids, TokenNames(engine_.tokenizer(), fields.shows_ids_as_tokens));
    return call;
  }

 private:
  ChatForm make_form(const std::vector<TokenId>& prompt_ids) const {
    const GenerationFields& fields = request_.generation;
    return {.head = answer_head("chatcmpl-", fields, settings_),
            .num_choices = fields.num_choices,
            .role = request_.role,
            .echoed = request_.echoed,
            .has_logprobs = fields.sampling.logprobs.has_value(),
            .has_prompt_logprobs = fields.sampling.prompt_logprobs.has_value(),
            .returns_token_ids = fields.returns_token_ids,
            .includes_reasoning = request_.includes_reasoning,
            .names_function = request_.tool_choice.kind == ToolChoice::Kind::kNamed,
            .requires_call = request_.tool_choice.kind == ToolChoice::Kind::kRequired,
            .shows_special = fields.sampling.shows_special,
            .parallel_tool_calls = request_.parallel_tool_calls,
            .starts_in_reasoning = ReplyMarkers(engine_.tokenizer()).ends_in_reasoning(prompt_ids)};
  }

  ChatRequest request_;
  const EngineClient& engine_;
  GrammarEngine& grammars_;
  const ApiSettings& settings_;
};

}  // namespace

std::unique_ptr<ApiTask> read_chat_task(const HttpRequest& request, const EngineClient& engine, GrammarEngine& grammars,
                                        const ApiSettings& settings) {
  const ordered_json body = read_body(request.body, settings.limits);
  ChatRequest chat = parse_chat(body, request, settings);
  chat.generation.constraint = with_tools(std::move(chat.generation.constraint), chat.prompt.tools, chat.tool_choice,
                                          chat.parallel_tool_calls, ReplyMarkers(engine.tokenizer()));
  return std::make_unique<ChatTask>(std::move(chat), engine, grammars, settings);
}

}  // namespace ferry::openai
