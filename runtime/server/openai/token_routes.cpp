#include "runtime/server/openai/token_routes.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/server/api/answer.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/prompt_making.h"
#include "runtime/server/api/token_names.h"
#include "runtime/server/http/router.h"
#include "runtime/server/openai/chat_request.h"

namespace ferry::api::openai {
namespace {

using CheckIn = std::function<void()>;  // of HttpRequest

void refuse_pictures(const ChatPrompt& chat) {
  if (chat.picture_urls.empty()) return;
  refuse("messages", "messages have pictures, whose tokens are known once they are read; allowed: text");
}

/// Of {"prompt", …} or {"messages", …}.
std::vector<TokenId> tokens_of(const RequestFields& fields, const EngineClient& engine, const ApiSettings& settings,
                               const CheckIn& check_in) {
  const PromptTask task{.limits = settings.limits, .check_in = check_in, .deadline = {}};
  GenerationFields generation;
  if (fields.has("messages")) {
    const ChatPrompt chat = parse_chat_prompt(fields, settings);
    refuse_pictures(chat);
    generation.adds_special_tokens = fields.flag("add_special_tokens", false);
    return encode_chat(engine, chat, generation, task).ids;
  }
  const std::optional<std::string> prompt = fields.string("prompt");
  if (!prompt) refuse_form("prompt", "missing field `prompt`, or `messages`");
  generation.adds_special_tokens = fields.flag("add_special_tokens", true);
  return prompt->empty() ? engine.encode_text("", check_in) : encode_prompt(engine, *prompt, generation, task);
}

ordered_json tokenize(const RequestFields& fields, const EngineClient& engine, const ApiSettings& settings,
                      const CheckIn& check_in) {
  const std::vector<TokenId> ids = tokens_of(fields, engine, settings, check_in);
  ordered_json names;
  if (fields.flag("return_token_strs", false)) {
    names = ordered_json::array();
    for (const TokenId id : ids) names.push_back(TokenNames(engine.tokenizer(), false).text(id));
  }
  return {{"count", ids.size()}, {"max_model_len", settings.context_length}, {"tokens", ids}, {"token_strs", std::move(names)}};
}

ordered_json detokenize(const RequestFields& fields, const EngineClient& engine, const ApiSettings& settings,
                        const CheckIn& /*check_in*/) {
  if (!fields.has("tokens")) refuse_form("tokens", "missing field `tokens`");
  const std::vector<TokenId> ids = fields.token_ids("tokens");
  for (const TokenId id : ids) {
    if (id < settings.vocab_size) continue;
    refuse("tokens", "token_id(s) [" + std::to_string(id) +
                         "] in prompt are out of vocabulary. Vocabulary size: " + std::to_string(settings.vocab_size));
  }
  return {{"prompt", engine.tokenizer().decode(ids, SpecialTokens::kKeep)}};
}

ordered_json apply_template(const RequestFields& fields, const EngineClient& engine, const ApiSettings& settings,
                            const CheckIn& check_in) {
  const ChatPrompt chat = parse_chat_prompt(fields, settings);
  return {{"prompt", render_chat(engine, chat, check_in)}};
}

}  // namespace

void add_token_routes(HttpRouter& router, const EngineClient& engine, const ApiSettings& settings) {
  const auto add = [&](const char* path, auto make) {
    const auto answer = [&engine, &settings, make](const HttpRequest& request) -> HttpResponse {
      try {
        const ordered_json body = read_body(request.body, settings.limits);
        const RequestFields fields(body);
        check_model(fields, settings);
        return {.status = 200, .body = dump(make(fields, engine, settings, request.check_in))};
      } catch (const std::exception&) {
        return current_error().response();
      }
    };
    router.add("POST", path, {.handler = {}, .blocking = answer, .watches_client = true});
  };
  add("/tokenize", tokenize);
  add("/detokenize", detokenize);
  add("/apply-template", apply_template);
}

}  // namespace ferry::api::openai
