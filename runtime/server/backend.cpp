#include "runtime/server/backend.h"

#include <utility>

namespace ferry {

std::vector<TokenId> CoordinatorBackend::encode_text(std::string_view text) const { return tokenizer_.encode(text); }

std::vector<TokenId> CoordinatorBackend::encode_chat(std::span<const ChatMessage> messages, Thinking thinking) const {
  return tokenizer_.encode(chat_template_.render(messages, thinking));
}

void CoordinatorBackend::submit(Request request, EventSink sink) { coordinator_.submit(std::move(request), std::move(sink)); }

bool CoordinatorBackend::abort(const std::string& request_id) { return coordinator_.abort(request_id); }

EngineLoad CoordinatorBackend::load() const { return coordinator_.load(); }

const ModelInfo& CoordinatorBackend::model_info() const { return coordinator_.model_info(); }

}  // namespace ferry
