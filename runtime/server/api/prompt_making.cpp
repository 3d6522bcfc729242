#include "runtime/server/api/prompt_making.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/grammar/reasoning_budget.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/request_media.h"

namespace ferry::api {
namespace {

void truncate(std::vector<TokenId>& ids, const Truncation& truncation, int64_t room) {
  const int64_t kept = truncation.num_tokens < 0 ? room : std::min(truncation.num_tokens, room);
  const int64_t num_dropped = std::ssize(ids) - kept;
  if (num_dropped <= 0) return;
  const auto begin = truncation.keeps_beginning ? ids.begin() + kept : ids.begin();
  ids.erase(begin, begin + num_dropped);
}

/// A text may be longer than the context where it will be cut.
std::vector<TokenId> encode_text(const EngineClient& engine, const std::string& text, const GenerationFields& fields,
                                 const PromptTask& task) {
  const PromptBounds bounds = engine.prompt_bounds();
  const EncodeLimits limits{.max_tokens = fields.truncation ? SIZE_MAX : static_cast<std::size_t>(bounds.max_tokens),
                            .allowed = bounds.allowed,
                            .check_in = task.check_in};
  const Tokenizer& tokenizer = engine.tokenizer();
  return fields.adds_special_tokens ? tokenizer.encode_prompt(text, limits) : tokenizer.encode(text, limits);
}

/// Returns the matcher of a completion's tokens, null if any token will do. Only a matcher needs a tokenizer.
std::shared_ptr<TokenGrammar> grammar_of(const EngineClient& engine, GrammarEngine& grammars, const GenerationFields& fields,
                                         const std::vector<TokenId>& prompt_ids) {
  if (!fields.constraint && !fields.thinking_budget) return nullptr;
  const ReplyMarkers markers(engine.tokenizer());
  std::shared_ptr<TokenGrammar> grammar = make_matcher(grammars, fields.constraint, prompt_ids, markers);
  if (fields.thinking_budget && markers.ends_in_reasoning(prompt_ids))
    grammar = std::make_shared<ReasoningBudget>(std::move(grammar), *fields.thinking_budget, markers);
  return grammar;
}

void check_length(const std::vector<TokenId>& ids, const PromptBounds& bounds) {
  if (std::ssize(ids) <= bounds.max_tokens) return;
  refuse("prompt", "Input length (" + std::to_string(ids.size()) + ") exceeds model's maximum context length (" +
                       std::to_string(bounds.max_tokens + 1) + "); allowed: " + bounds.allowed);
}

}  // namespace

void check_num_choices(const EngineClient& engine, std::size_t num_choices) {
  const EngineLoad load = engine.load();
  const auto most = static_cast<std::size_t>(load.max_running_requests) + static_cast<std::size_t>(load.max_waiting_requests);
  if (num_choices <= most) return;
  refuse("n", "the request has " + std::to_string(num_choices) + " choices of all prompts together; allowed: at most " +
                  std::to_string(most) + ", as many as run and wait at once");
}

std::vector<TokenId> encode_prompt(const EngineClient& engine, const CompletionPrompt& prompt, const GenerationFields& fields,
                                   const PromptTask& task) {
  const auto* ids = std::get_if<std::vector<TokenId>>(&prompt);
  const PromptBounds bounds = engine.prompt_bounds();
  if (ids == nullptr && std::ssize(std::get<std::string>(prompt)) > task.limits.prompt_bytes) {
    refuse("prompt", "prompt has " + std::to_string(std::get<std::string>(prompt).size()) + " bytes; allowed: at most " +
                         std::to_string(task.limits.prompt_bytes));
  }
  std::vector<TokenId> tokens = ids != nullptr ? *ids : encode_text(engine, std::get<std::string>(prompt), fields, task);
  if (fields.truncation) truncate(tokens, *fields.truncation, bounds.max_tokens);
  if (tokens.empty()) refuse("prompt", "Either prompt or prompt_embeds must be provided and non-empty.");
  check_length(tokens, bounds);
  return tokens;
}

std::string render_chat(const EngineClient& engine, const ChatPrompt& chat, const std::function<void()>& check_in) {
  return engine.tokenizer().decode(engine.encode_chat(chat.input, check_in), SpecialTokens::kKeep);
}

PromptStep step_of_chat(const ChatPrompt& chat, const ServerLimits& limits) {
  if (chat.picture_urls.empty()) return {};
  return step_of_media(std::vector<std::string_view>(chat.picture_urls.begin(), chat.picture_urls.end()), limits);
}

MediaPrompt encode_chat(const EngineClient& engine, const ChatPrompt& chat, const GenerationFields& fields,
                        const PromptTask& task) {
  RequestMedia media(engine, task);
  if (!chat.picture_urls.empty()) engine.media();  // refuses them before any is fetched
  for (const std::string& url : chat.picture_urls)
    media.read({.kind = Medium::Kind::kPicture, .files = {{.data = {}, .url = url}}, .fps = {}});
  std::vector<TokenId> ids = fields.adds_special_tokens
                                 ? encode_text(engine, render_chat(engine, chat, task.check_in), fields, task)
                                 : engine.encode_chat(chat.input, task.check_in);
  if (fields.truncation) truncate(ids, *fields.truncation, engine.prompt_bounds().max_tokens);
  return media.place(std::move(ids));
}

Request request_of(const EngineClient& engine, GrammarEngine& grammars, const GenerationFields& fields,
                   const std::string& answer_id, MediaPrompt prompt, std::size_t choice, std::size_t num_choices) {
  Request request;
  request.id = num_choices == 1 ? answer_id : answer_id + "-" + std::to_string(choice);
  const auto choice_of_prompt = static_cast<int32_t>(choice % static_cast<std::size_t>(fields.num_choices));
  request.sampling = sampling_of(fields, engine, std::ssize(prompt.ids), choice_of_prompt);
  request.account = fields.account;
  request.priority = fields.priority;
  request.cache_salt = fields.cache_salt;
  request.grammar = grammar_of(engine, grammars, fields, prompt.ids);
  request.prompt = std::move(prompt.ids);
  request.media = std::move(prompt.media);
  return request;
}

}  // namespace ferry::api
