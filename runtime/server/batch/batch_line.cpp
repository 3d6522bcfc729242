#include "runtime/server/batch/batch_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/base/random_id.h"

namespace ferry::batch {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kLineBegin = R"({"id":"batch_req_)";
constexpr int64_t kAroundBodyBytes = 4096;  // of a line, beside its body
constexpr int64_t kAroundBodyValues = 16;
constexpr int64_t kMembersMax = 1024;  // of one object
// Of a line of the output, which answers as much as was asked for.
constexpr JsonLimits kOutputLimits{
    .depth = 64, .bytes = int64_t{1} << 32, .values = int64_t{1} << 28, .members = int64_t{1} << 20};

std::string dumped(const ordered_json& value) { return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

/// What is wrong with a line whose custom_id is known; empty: nothing.
std::string fault_of(const ordered_json& object) {
  const auto method = object.find("method"), url = object.find("url"), body = object.find("body");
  if (method == object.end() || *method != "POST")
    return "method is " + (method == object.end() ? "missing" : shown(*method)) + "; allowed: \"POST\"";
  if (url == object.end() || (*url != "/v1/chat/completions" && *url != "/v1/completions" && *url != "/v1/responses"))
    return "url is " + (url == object.end() ? "missing" : shown(*url)) +
           "; allowed: /v1/chat/completions, /v1/completions, /v1/responses";
  if (body == object.end() || !body->is_object())
    return "body is " + (body == object.end() ? "missing" : shown(*body)) + "; allowed: a JSON object";
  const auto stream = body->find("stream");
  if (stream != body->end() && !stream->is_null() && *stream != false)
    return "body.stream is " + shown(*stream) + "; allowed in a batch: false";
  return "";
}

/// JSON as it is, which answers of routes are; other text as a string. A line may not have a break within.
std::string body_of(const HttpResponse& response) {
  const bool is_json = response.content_type.starts_with("application/json") && !response.body.empty() &&
                       response.body.front() == '{' && response.body.find('\n') == std::string::npos;
  return is_json ? response.body : dumped(response.body);
}

std::string id_of(const ordered_json& object) {
  const auto id = object.find("custom_id");
  if (id == object.end() || !id->is_string()) return "";
  const auto& text = id->get_ref<const std::string&>();
  return text.size() <= kCustomIdBytesMax ? text : "";
}

}  // namespace

std::variant<BatchRequest, BatchComplaint> read_batch_line(std::string_view text, int64_t line, const ServerLimits& limits) {
  ordered_json object;
  try {
    object = parse_ordered_json(text, "the line",
                                {.depth = static_cast<int>(limits.http_json_depth) + 1,
                                 .bytes = limits.http_body_bytes + kAroundBodyBytes,
                                 .values = limits.http_json_values + kAroundBodyValues,
                                 .members = kMembersMax,
                                 .duplicates = DuplicateKeys::kRefuse});
  } catch (const Error& error) {
    return BatchComplaint{.line = line, .custom_id = "", .code = "invalid_json_line", .message = error.what()};
  }
  if (!object.is_object()) {
    return BatchComplaint{
        .line = line, .custom_id = "", .code = "invalid_json_line", .message = shown(object) + "; allowed: a JSON object"};
  }
  const std::string custom_id = id_of(object);
  const std::string fault = custom_id.empty() ? "custom_id is missing, empty, no text or longer than " +
                                                    std::to_string(kCustomIdBytesMax) + " bytes; allowed: a name of its own"
                                              : fault_of(object);
  if (!fault.empty()) return BatchComplaint{.line = line, .custom_id = custom_id, .code = "invalid_request", .message = fault};
  return BatchRequest{
      .line = line, .custom_id = custom_id, .url = object["url"].get<std::string>(), .body = dumped(object["body"])};
}

std::string answer_line(const BatchRequest& request, const std::string& request_id, const HttpResponse& response) {
  // The body is text already and may be large: it gets no tree.
  const std::string begin = dumped({{"id", "batch_req_" + random_id()}, {"custom_id", request.custom_id}});
  const std::string about = dumped({{"status_code", response.status}, {"request_id", request_id}});
  std::string line;
  line.reserve(begin.size() + about.size() + response.body.size() + kAroundBodyBytes);
  line.append(begin, 0, begin.size() - 1).append(R"(,"response":)").append(about, 0, about.size() - 1);
  line.append(R"(,"body":)").append(body_of(response)).append(R"(},"error":null})");
  return line;
}

std::string complaint_line(const BatchComplaint& complaint) {
  return dumped({{"id", "batch_req_" + random_id()},
                 {"custom_id", complaint.custom_id.empty() ? ordered_json() : ordered_json(complaint.custom_id)},
                 {"line", complaint.line},
                 {"response", nullptr},
                 {"error", {{"code", complaint.code}, {"message", complaint.message}}}});
}

BatchDone read_output_line(std::string_view text, const std::string& name) {
  const ordered_json object = parse_ordered_json(text, name, kOutputLimits);
  const auto found = [&](const char* member) {
    const auto it = object.is_object() ? object.find(member) : object.end();
    return it == object.end() ? nullptr : &*it;
  };
  const ordered_json *line = found("line"), *response = found("response"), *custom_id = found("custom_id");
  if (line != nullptr && line->is_number_integer()) return {.custom_id = "", .line = line->get<int64_t>(), .is_failed = true};
  if (custom_id != nullptr && custom_id->is_string() && response != nullptr && response->is_object()) {
    const auto status = response->find("status_code");
    return {.custom_id = custom_id->get<std::string>(), .is_failed = status == response->end() || *status != 200};
  }
  throw_invalid(name + " is " + shown(object) + "; allowed: an answer that ferry batch wrote, or no such file");
}

bool may_begin_output_line(std::string_view text) {
  const std::size_t length = std::min(text.size(), kLineBegin.size());
  return text.substr(0, length) == kLineBegin.substr(0, length);
}

}  // namespace ferry::batch
