#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/options/server_limits.h"
#include "runtime/server/http/message.h"

// One line of OpenAI's batch files, which have a JSON object a line. Of the input:
//
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {…}}
//
// and of the output, for a request that was made, whatever came of it, and for a line that is none:
//
//   {"id": …, "custom_id": "a", "response": {"status_code": 200, "request_id": …, "body": {…}}, "error": null}
//   {"id": …, "custom_id": "a" or null, "line": 7, "response": null, "error": {"code": …, "message": …}}

namespace ferry::batch {

inline constexpr std::size_t kCustomIdBytesMax = 512;

/// A line that asks for something.
struct BatchRequest {
  int64_t line = 0;  // of the input, from 1
  std::string custom_id;
  std::string url;
  std::string body;  // JSON
};

/// A line that asks for nothing that can be had.
struct BatchComplaint {
  int64_t line = 0;
  std::string custom_id;  // empty: it has none that could be read
  std::string code;       // "invalid_json_line", "invalid_request", "duplicate_custom_id", "line_too_long"
  std::string message;
};

std::variant<BatchRequest, BatchComplaint> read_batch_line(std::string_view text, int64_t line, const ServerLimits& limits);

/// Lines of the output, without the line break.
std::string answer_line(const BatchRequest& request, const std::string& request_id, const HttpResponse& response);
std::string complaint_line(const BatchComplaint& complaint);

/// A line of the output tells this of the input.
struct BatchDone {
  std::string custom_id;   // of the request that was made; empty: it complains about `line`
  int64_t line = 0;        // of the input
  bool is_failed = false;  // a complaint, or an answer with another status than 200
};
/// Throws Error{kInvalidArgument} for what ferry batch does not write.
BatchDone read_output_line(std::string_view text, const std::string& name);
/// Whether `text` may be the beginning of a line of the output.
bool may_begin_output_line(std::string_view text);

}  // namespace ferry::batch
