#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/coordinator.h"

namespace ferry::api {

using nlohmann::ordered_json;

class ApiError;

/// Makes a route's answer of what is told of its choices, piece by piece for a stream or as a whole; which of the two is asked
/// for does not change. One thread at a time.
class Answer {
 public:
  virtual ~Answer() = default;

  // A stream. It is called on the engine's thread.
  /// Events of the stream for what `event` tells of a choice; empty: nothing has to be sent.
  virtual std::string chunk(std::size_t choice, const GenerateEvent& event) = 0;
  /// What follows when all choices have ended.
  virtual std::string last_chunks() = 0;
  /// What follows when `error` ends the stream; nothing: what the API says of any error.
  virtual std::optional<std::string> failed(const ApiError& /*error*/) { return std::nullopt; }

  // A whole answer.
  /// Keeps it; on the engine's thread.
  virtual void keep(std::size_t choice, const GenerateEvent& event) = 0;
  /// The body, when all choices have ended. Takes time where much was asked for.
  virtual std::string whole() = 0;
};

/// What is told of a choice, kept for a whole answer.
struct KeptChoice {
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprobs> token_logprobs, prompt_logprobs;
  GenerateEvent last;  // of the last event: how it ended

  void keep(const GenerateEvent& event);
};

/// What all chunks of an answer say.
struct AnswerHead {
  std::string id;
  std::string model;
  std::string fingerprint;
  int64_t created = 0;  // seconds since 1970
  bool includes_usage = false;
  bool has_usage_in_chunks = false;
};

struct UsageCount {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;     // of the prompt's
  int64_t reasoning_tokens = 0;  // of the completion's
};

ordered_json usage_json(const UsageCount& usage);
/// "stop", "length" or "abort".
const char* finish_name(FinishReason reason);
/// The stop string or the request's own stop id; null for all else.
ordered_json stop_reason_json(const GenerateEvent& last);

/// One event of a stream: "data: …" and an empty line.
std::string server_sent(const ordered_json& data);
/// The same of JSON that is text already.
std::string server_sent_text(const std::string& json);
/// One that says its name, which is the data's "type": "event: …", "data: …" and an empty line.
std::string named_server_sent(const ordered_json& data);
/// As text; what is no UTF-8 becomes U+FFFD.
std::string dump(const ordered_json& value);

}  // namespace ferry::api
