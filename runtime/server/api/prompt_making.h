#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/server/api/conversation.h"
#include "runtime/server/api/settings.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/prompt_pools.h"
#include "runtime/server/prompt_task.h"
#include "runtime/server/siblings.h"

// From what a request says to the tokens that the engine takes. All of it takes time, and throws ApiError, Error and what
// task.check_in throws.

namespace ferry::api {

/// A prompt as text or as token ids.
using CompletionPrompt = std::variant<std::string, std::vector<TokenId>>;

/// Refuses more choices than the engine could ever hold at once, before their prompts are made.
void check_num_choices(const EngineClient& engine, std::size_t num_choices);

/// The tokens of a text, cut as `truncation` says if it is there; else a prompt that is too long is refused.
std::vector<TokenId> encode_prompt(const EngineClient& engine, const CompletionPrompt& prompt, const GenerationFields& fields,
                                   const PromptTask& task);

/// The step that encode_chat() is, without the key.
PromptStep step_of_chat(const ChatPrompt& chat, const ServerLimits& limits);

/// The tokens of a conversation, with its pictures.
MediaPrompt encode_chat(const EngineClient& engine, const ChatPrompt& chat, const GenerationFields& fields,
                        const PromptTask& task);

/// The conversation as the template writes it, pictures as their placeholders.
std::string render_chat(const EngineClient& engine, const ChatPrompt& chat, const std::function<void()>& check_in);

/// A request for choice `choice` of a prompt, with a matcher of its own. Its id is the answer's, with the choice's number where
/// there are several.
Request request_of(const EngineClient& engine, GrammarEngine& grammars, const GenerationFields& fields,
                   const std::string& answer_id, MediaPrompt prompt, std::size_t choice, std::size_t num_choices);

}  // namespace ferry::api
