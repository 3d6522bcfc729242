#include "runtime/server/api/answer.h"

namespace ferry::api {
namespace {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

void KeptChoice::keep(const GenerateEvent& event) {
  append(token_ids, event.token_ids);
  append(token_logprobs, event.logprobs);
  append(prompt_logprobs, event.prompt_logprobs);
  if (event.finish_reason == FinishReason::kNone) return;
  last.finish_reason = event.finish_reason;
  last.stop = event.stop;
  last.stop_id = event.stop_id;
}

ordered_json usage_json(const UsageCount& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    default: return "abort";
  }
}

ordered_json stop_reason_json(const GenerateEvent& last) {
  if (!last.stop.empty()) return last.stop;
  if (last.stop_id) return *last.stop_id;
  return nullptr;
}

std::string dump(const ordered_json& value) { return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

std::string server_sent(const ordered_json& data) { return server_sent_text(dump(data)); }

std::string server_sent_text(const std::string& json) { return "data: " + json + "\n\n"; }

std::string named_server_sent(const ordered_json& data) {
  return "event: " + data.at("type").get_ref<const std::string&>() + "\n" + server_sent(data);
}

}  // namespace ferry::api
