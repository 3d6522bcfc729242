#include "runtime/server/api/answer_head.h"

#include <chrono>

namespace ferry::api {

AnswerHead answer_head(const std::string& prefix, const GenerationFields& fields, const ApiSettings& settings) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.id = prefix + fields.request_id,
          .model = settings.model_names.front(),
          .fingerprint = settings.fingerprint,
          .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .includes_usage = fields.includes_usage,
          .has_usage_in_chunks = fields.has_usage_in_chunks};
}

HttpHeaders answer_headers(const GenerationFields& fields) {
  if (!fields.echoes_request_id) return {};
  return {{"X-Request-Id", fields.request_id}};
}

}  // namespace ferry::api
