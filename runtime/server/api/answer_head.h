#pragma once

#include <string>

#include "runtime/server/api/answer.h"
#include "runtime/server/api/generation_fields.h"

namespace ferry::api {

/// What an answer to a request says of itself; `prefix` begins its id: "cmpl-", "chatcmpl-".
AnswerHead answer_head(const std::string& prefix, const GenerationFields& fields, const ApiSettings& settings);

/// X-Request-Id, where the server was started so.
HttpHeaders answer_headers(const GenerationFields& fields);

}  // namespace ferry::api
