#include "runtime/server/api/conversation.h"

#include <utility>

#include "runtime/server/api/prompt_making.h"
#include "runtime/text/reply/reply_markers.h"

namespace ferry::api {
namespace {

class ConversationTask final : public ApiTask {
 public:
  ConversationTask(Conversation conversation, std::string answer_prefix, MakeAnswer make_answer, const EngineClient& engine,
                   GrammarEngine& grammars)
      : conversation_(std::move(conversation)),
        answer_prefix_(std::move(answer_prefix)),
        make_answer_(std::move(make_answer)),
        engine_(engine),
        grammars_(grammars) {}

  const GenerationFields& generation() const override { return conversation_.generation; }
  PromptStep step(const ServerLimits& limits) const override { return step_of_chat(conversation_.prompt, limits); }

  PreparedCall prepare(const PromptTask& task) override {
    GenerationFields& fields = conversation_.generation;
    fields.sampling.bad_words = bad_word_ids(fields.bad_words, engine_.tokenizer());
    const auto num_choices = static_cast<std::size_t>(fields.num_choices);
    check_num_choices(engine_, num_choices);
    const MediaPrompt prompt = encode_chat(engine_, conversation_.prompt, fields, task);
    PreparedCall call;
    for (std::size_t i = 0; i < num_choices; ++i) {
      call.requests.push_back(
          request_of(engine_, grammars_, fields, answer_prefix_ + fields.request_id, prompt, i, num_choices));
      if (i > 0) call.requests.back().sampling.prompt_logprobs.reset();  // the answer has them once
    }
    make_siblings(call.requests);
    call.answer = make_answer_(conversation_, reading_of(prompt.ids));
    return call;
  }

 private:
  ReplyReading reading_of(const std::vector<TokenId>& prompt_ids) {
    const bool may_call = conversation_.tool_choice.kind != ToolChoice::Kind::kNone;
    return {.tools = may_call ? std::move(conversation_.prompt.tools) : ToolSet(),
            .prompt_ids = prompt_ids,
            .parallel_tool_calls = conversation_.parallel_tool_calls,
            .starts_in_reasoning = ReplyMarkers(engine_.tokenizer()).ends_in_reasoning(prompt_ids),
            .shows_special = conversation_.generation.sampling.shows_special};
  }

  Conversation conversation_;
  const std::string answer_prefix_;
  const MakeAnswer make_answer_;
  const EngineClient& engine_;
  GrammarEngine& grammars_;
};

}  // namespace

ReplyParser::Options ReplyReading::options() const {
  return {.tools = &tools,
          .parallel_calls = parallel_tool_calls,
          .starts_in_reasoning = starts_in_reasoning,
          .special = shows_special ? SpecialTokens::kKeep : SpecialTokens::kSkip,
          .closes_cut_calls = closes_cut_calls};
}

std::unique_ptr<ApiTask> conversation_task(Conversation conversation, std::string answer_prefix, MakeAnswer make_answer,
                                           const EngineClient& engine, GrammarEngine& grammars) {
  GenerationFields& fields = conversation.generation;
  fields.constraint = with_tools(std::move(fields.constraint), conversation.prompt.tools, conversation.tool_choice,
                                 conversation.parallel_tool_calls, ReplyMarkers(engine.tokenizer()));
  return std::make_unique<ConversationTask>(std::move(conversation), std::move(answer_prefix), std::move(make_answer), engine,
                                            grammars);
}

}  // namespace ferry::api
