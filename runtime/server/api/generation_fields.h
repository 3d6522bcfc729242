#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/schedule/request.h"
#include "runtime/server/api/output_constraint.h"
#include "runtime/server/api/request_fields.h"
#include "runtime/server/api/settings.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/http/message.h"

namespace ferry::api {

/// What a prompt that is too long loses.
struct Truncation {
  int64_t num_tokens = 0;        // that stay
  bool keeps_beginning = false;  // else the end stays
};

/// What /v1/completions and /v1/chat/completions have in common, as a request means it: what it does not say has its default.
struct GenerationFields {
  std::string request_id;  // as the client gave it, else made up
  bool echoes_request_id = false;
  std::string account;  // whom the caller's fair share is: its key, or else the `user` that it names
  int64_t priority = 0;
  std::string cache_salt;
  SamplingParams sampling;             // but for max_tokens, seed and bad_words
  std::optional<int64_t> max_tokens;   // absent: as many as there is room for
  uint64_t seed = 0;                   // of the first choice; one that nobody can guess where the request has none
  std::vector<std::string> bad_words;  // as text
  int32_t num_choices = 1;             // of each prompt
  bool streams = false;
  bool includes_usage = false;       // in a stream's last chunk
  bool has_usage_in_chunks = false;  // in all of them
  bool returns_token_ids = false;
  bool shows_ids_as_tokens = false;  // "token_id:123" in logprobs
  std::optional<Truncation> truncation;
  std::optional<OutputConstraint> constraint;
  std::optional<int64_t> thinking_budget;  // tokens of the thought, its end among them; absent: no bound
  bool adds_special_tokens = false;        // what the tokenizer puts around a text
};

/// Whom a request's fair share is: the caller's key, or else the `user` that it names (null or no string: nobody). A caller
/// with a key cannot have more shares than one by naming users. Of a name only the beginning counts.
std::string account_of(const HttpRequest& request, const nlohmann::ordered_json* user);

/// The key that PromptStep has. A `user` that a request names is none, since one client could name many.
std::string key_of(const HttpRequest& request);

/// What both routes understand alike. `max_tokens` is read by the routes, whose defaults differ. Throws ApiError: 404 for a
/// model that is not served, 400 for values out of range and for fields that change an answer and are not served.
GenerationFields read_generation(const RequestFields& fields, const HttpRequest& request, const ApiSettings& settings);

/// `logprobs` or one of its like: how many of the likeliest tokens are told, -1 for all.
std::optional<int32_t> read_num_logprobs(const RequestFields& fields, const char* name, const ApiSettings& settings);

/// A field that is a list of strings that end a completion (or one string).
std::vector<std::string> read_stop(const RequestFields& fields, const char* name, const ServerLimits& limits);

/// Checks what can be told once max_tokens is known.
void check_min_tokens(const GenerationFields& fields);

/// The sampling of choice `choice` of a prompt of `num_prompt` tokens. Its seed is the request's plus the choice's number
/// (mod 2^64), so that the same request has the same choices and choice k of many is the only one of seed + k.
SamplingParams sampling_of(const GenerationFields& fields, const EngineClient& engine, int64_t num_prompt, int32_t choice);

/// Ids of `bad_words`: each word as it stands at a text's beginning, and behind a space where that has other tokens of the same
/// number (as vLLM's SamplingParams.update_from_tokenizer does).
std::vector<std::vector<TokenId>> bad_word_ids(const std::vector<std::string>& words, const Tokenizer& tokenizer);

/// The request's model; throws ApiError 404 if it is not served. Absent: the one that is.
void check_model(const RequestFields& fields, const ApiSettings& settings);

/// The id for an answer: header X-Request-Id, else the field request_id, else a new one.
std::string request_id_of(const RequestFields& fields, const HttpRequest& request);

}  // namespace ferry::api
