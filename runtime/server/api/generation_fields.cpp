#include "runtime/server/api/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/base/random_id.h"
#include "runtime/schedule/sampling_params.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/refused_fields.h"
#include "runtime/text/unicode_text.h"

namespace ferry::api {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kGreedyTemperature = 1e-5;  // below it a draw is the likeliest token (vLLM: _SAMPLING_EPS)
constexpr double kBiasMax = 100.0;
constexpr int64_t kChoicesMax = 128;  // of one prompt
constexpr std::size_t kBadWordsMax = 1024;
constexpr std::size_t kRequestIdBytesMax = 128;

float number_or(const RequestFields& fields, const char* name, double least, double most, std::optional<double> otherwise,
                double last) {
  return static_cast<float>(fields.number(name, least, most).value_or(otherwise.value_or(last)));
}

void read_distribution(const RequestFields& fields, const GenerationDefaults& defaults, SamplingParams& sampling) {
  const float largest = std::numeric_limits<float>::max();
  sampling.temperature = number_or(fields, "temperature", 0.0, largest, defaults.temperature, 1.0);
  if (sampling.temperature < kGreedyTemperature) sampling.temperature = 0.0F;
  sampling.top_p = number_or(fields, "top_p", 0.0, 1.0, defaults.top_p, 1.0);
  if (sampling.top_p <= 0.0F) refuse("top_p", "top_p is " + shown(*fields.find("top_p")) + "; allowed: above 0, at most 1");
  const int64_t top_k = fields.integer("top_k", -1, std::numeric_limits<int32_t>::max()).value_or(defaults.top_k.value_or(0));
  sampling.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));
  sampling.min_p = number_or(fields, "min_p", 0.0, 1.0, defaults.min_p, 0.0);
  sampling.repetition_penalty = number_or(fields, "repetition_penalty", 0.0, largest, defaults.repetition_penalty, 1.0);
  if (sampling.repetition_penalty <= 0.0F)
    refuse("repetition_penalty", "repetition_penalty is 0; allowed: a finite number above 0");
  sampling.presence_penalty = number_or(fields, "presence_penalty", -2.0, 2.0, {}, 0.0);
  sampling.frequency_penalty = number_or(fields, "frequency_penalty", -2.0, 2.0, {}, 0.0);
}

std::vector<TokenBias> read_bias(const RequestFields& fields, int64_t vocab_size) {
  std::vector<TokenBias> biases;
  const ordered_json* object = fields.find("logit_bias");
  if (object == nullptr) return biases;
  if (!object->is_object()) fields.refuse_kind("logit_bias", "an object of token ids and numbers");
  if (std::cmp_greater(object->size(), kMaxLogitBiases))
    refuse("logit_bias", "logit_bias has more than " + std::to_string(kMaxLogitBiases) + " tokens");
  for (const auto& [key, value] : object->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_id = error == std::errc() && end == key.data() + key.size() && id >= 0 && id < vocab_size;
    if (!is_id) {
      refuse("logit_bias",
             "logit_bias has the key " + in_quotes(key) + "; allowed: token ids 0 to " + std::to_string(vocab_size - 1));
    }
    if (!value.is_number())
      refuse_form("logit_bias", "logit_bias of " + in_quotes(key) + " is " + shown(value) + "; allowed: a number");
    const auto is_same = [id](const TokenBias& bias) { return bias.id == id; };
    if (std::any_of(biases.begin(), biases.end(), is_same))  // "7" and "07"
      refuse("logit_bias", "logit_bias has token " + std::to_string(id) + " twice; allowed: once");
    biases.push_back({.id = id, .bias = static_cast<float>(std::clamp(value.get<double>(), -kBiasMax, kBiasMax))});
  }
  return biases;
}

void read_ids(const RequestFields& fields, const ApiSettings& settings, SamplingParams& sampling) {
  sampling.stop_token_ids = fields.token_ids("stop_token_ids");
  sampling.allowed_token_ids = fields.token_ids("allowed_token_ids");
  if (fields.has("allowed_token_ids") && sampling.allowed_token_ids.empty())
    refuse("allowed_token_ids", "allowed_token_ids is not None and empty!");
  for (const TokenId id : sampling.allowed_token_ids) {
    if (id >= settings.vocab_size)
      refuse("allowed_token_ids", "allowed_token_ids contains out-of-vocab token id " + std::to_string(id) + "!");
  }
  sampling.logit_bias = read_bias(fields, settings.vocab_size);
}

void read_streaming(const RequestFields& fields, GenerationFields& generation) {
  generation.streams = fields.flag("stream", false);
  const std::optional<RequestFields> options = fields.object("stream_options");
  if (!options) return;
  if (!generation.streams) refuse("stream_options", "Stream options can only be defined when `stream=True`.");
  generation.includes_usage = options->flag("include_usage", false);
  generation.has_usage_in_chunks = options->flag("continuous_usage_stats", false) && generation.includes_usage;
}

std::optional<Truncation> read_truncation(const RequestFields& fields, const ApiSettings& settings) {
  const std::optional<int64_t> length = fields.integer("truncate_prompt_tokens", -1, settings.context_length);
  const std::optional<std::string> side = fields.string("truncation_side");
  if (side && *side != "left" && *side != "right") fields.refuse_kind("truncation_side", "\"left\", \"right\"");
  if (!length) return std::nullopt;
  if (*length == 0) refuse("truncate_prompt_tokens", "truncate_prompt_tokens is 0; allowed: -1 (the context), or at least 1");
  return Truncation{.num_tokens = *length, .keeps_beginning = side == "right"};
}

/// Of vLLM's form.
std::string read_cache_salt(const RequestFields& fields) {
  constexpr std::size_t kBytesMax = 128;
  const auto salt = fields.string("cache_salt");
  if (!salt) return "";
  const bool has_bad = salt->find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos;
  if (!salt->empty() && salt->size() <= kBytesMax && !has_bad) return *salt;
  refuse("cache_salt",
         "Parameter 'cache_salt' must be a non-empty string of at most 128 characters and must not contain '@', '/', '\\' or "
         "NUL.");
}

int64_t read_priority(const RequestFields& fields, const ApiSettings& settings) {
  const int64_t priority = fields.integer("priority").value_or(0);
  if (priority == 0 || settings.takes_priorities) return priority;
  refuse("priority", "Got priority " + std::to_string(priority) + " but Priority scheduling is not enabled.");
}

}  // namespace

void check_model(const RequestFields& fields, const ApiSettings& settings) {
  const std::optional<std::string> model = fields.string("model");
  const auto& names = settings.model_names;
  if (!model || std::find(names.begin(), names.end(), *model) != names.end()) return;
  throw ApiError(404, "NotFoundError", "The model `" + whole_characters(*model, 200) + "` does not exist.", "model");
}

std::string request_id_of(const RequestFields& fields, const HttpRequest& request) {
  const auto header = request.header("x-request-id");
  std::string id = header && !header->empty() ? std::string(*header) : fields.string("request_id").value_or("");
  if (id.empty()) return random_id();
  const bool is_plain = std::all_of(id.begin(), id.end(), [](char c) { return c >= '!' && c <= '~'; });
  if (is_plain && id.size() <= kRequestIdBytesMax) return id;
  refuse("request_id", "request_id is " + in_quotes(id) + "; allowed: at most " + std::to_string(kRequestIdBytesMax) +
                           " characters of printable ASCII without spaces");
}

std::optional<int32_t> read_num_logprobs(const RequestFields& fields, const char* name, const ApiSettings& settings) {
  const std::optional<int64_t> count = fields.integer(name);
  if (!count) return std::nullopt;
  if (*count < -1) refuse(name, "`" + std::string(name) + "` must be a positive value or -1.");
  const bool has_bound = settings.max_logprobs >= 0 && settings.max_logprobs < settings.vocab_size;
  if (has_bound && (*count == -1 || *count > settings.max_logprobs)) {
    refuse(name, "Requested " + std::string(name) + " of " + std::to_string(*count == -1 ? settings.vocab_size : *count) +
                     ", which is greater than max allowed: " + std::to_string(settings.max_logprobs));
  }
  if (*count == -1) return SamplingParams::kWholeVocabulary;
  return static_cast<int32_t>(std::min(*count, settings.vocab_size));
}

std::string account_of(const HttpRequest& request, const ordered_json* user) {
  constexpr std::size_t kUserBytes = 256;
  if (request.caller) return "key " + std::to_string(*request.caller);
  return user != nullptr && user->is_string() ? "user " + user->get_ref<const std::string&>().substr(0, kUserBytes) : "";
}

std::string key_of(const HttpRequest& request) {
  return request.caller ? "key " + std::to_string(*request.caller) : std::string();
}

GenerationFields read_generation(const RequestFields& fields, const HttpRequest& request, const ApiSettings& settings) {
  check_model(fields, settings);
  refuse_unserved(fields);
  GenerationFields generation;
  generation.request_id = request_id_of(fields, request);
  generation.echoes_request_id = settings.echoes_request_id;
  generation.account = account_of(request, fields.find("user"));
  generation.priority = read_priority(fields, settings);
  generation.cache_salt = read_cache_salt(fields);
  generation.constraint = read_constraint(fields);
  SamplingParams& sampling = generation.sampling;
  read_distribution(fields, settings.defaults, sampling);
  read_ids(fields, settings, sampling);
  sampling.stop = read_stop(fields, "stop", settings.limits);
  sampling.includes_stop = fields.flag("include_stop_str_in_output", false);
  sampling.ignore_eos = fields.flag("ignore_eos", false);
  sampling.min_tokens = static_cast<int32_t>(fields.integer("min_tokens", 0, std::numeric_limits<int32_t>::max()).value_or(0));
  sampling.shows_special = !fields.flag("skip_special_tokens", true);
  sampling.prompt_logprobs = read_num_logprobs(fields, "prompt_logprobs", settings);
  generation.bad_words = fields.strings("bad_words");
  if (generation.bad_words.size() > kBadWordsMax)
    refuse("bad_words", "bad_words has more than " + std::to_string(kBadWordsMax) + " words");
  const std::optional<int64_t> seed = fields.integer("seed");
  generation.seed = seed ? static_cast<uint64_t>(*seed) : random_seed();
  generation.num_choices = static_cast<int32_t>(fields.integer("n", 1, kChoicesMax).value_or(1));
  if (generation.num_choices > 1 && sampling.temperature == 0.0F)
    refuse("n", "n must be 1 when using greedy sampling, got " + std::to_string(generation.num_choices) + ".");
  read_streaming(fields, generation);
  if (generation.streams && sampling.prompt_logprobs.value_or(0) != 0)
    refuse("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.");
  generation.returns_token_ids = fields.flag("return_token_ids", false);
  generation.shows_ids_as_tokens = fields.flag("return_tokens_as_token_ids", false);
  generation.truncation = read_truncation(fields, settings);
  const std::optional<int64_t> budget = fields.integer("thinking_token_budget", -1, std::numeric_limits<int32_t>::max());
  if (budget.value_or(-1) != -1) generation.thinking_budget = budget;
  return generation;
}

std::vector<std::string> read_stop(const RequestFields& fields, const char* name, const ServerLimits& limits) {
  const ordered_json* value = fields.find(name);
  if (value == nullptr) return {};
  std::vector<std::string> stops;
  if (value->is_string()) {
    stops.push_back(value->get<std::string>());
  } else {
    stops = fields.strings(name);
  }
  if (std::ssize(stops) > limits.stop_strings) {
    refuse(name, std::string(name) + " has " + std::to_string(stops.size()) + " strings; allowed: at most " +
                     std::to_string(limits.stop_strings));
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) refuse(name, std::string(name) + " cannot contain an empty string.");
    if (std::ssize(stop) > limits.stop_bytes) {
      refuse(name, "a string of " + std::string(name) + " has " + std::to_string(stop.size()) + " bytes; allowed: at most " +
                       std::to_string(limits.stop_bytes));
    }
  }
  return stops;
}

void check_min_tokens(const GenerationFields& fields) {
  if (!fields.max_tokens || fields.sampling.min_tokens <= *fields.max_tokens) return;
  refuse("min_tokens", "min_tokens must be less than or equal to max_tokens=" + std::to_string(*fields.max_tokens) + ", got " +
                           std::to_string(fields.sampling.min_tokens) + ".");
}

SamplingParams sampling_of(const GenerationFields& fields, const EngineClient& engine, int64_t num_prompt, int32_t choice) {
  SamplingParams sampling = fields.sampling;
  const int64_t room = std::max<int64_t>(engine.prompt_bounds().max_tokens + 1 - num_prompt, 1);
  sampling.max_tokens = static_cast<int32_t>(std::min(fields.max_tokens.value_or(room), room));
  sampling.min_tokens = std::min(sampling.min_tokens, sampling.max_tokens);
  sampling.seed = fields.seed + static_cast<uint64_t>(choice);
  return sampling;
}

std::vector<std::vector<TokenId>> bad_word_ids(const std::vector<std::string>& words, const Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> all;
  for (const std::string& word : words) {
    std::string text = word.substr(std::min(word.find_first_not_of(" \t\n\r\f\v"), word.size()));
    if (text.empty()) refuse("bad_words", "bad_words has an empty word");
    std::vector<TokenId> ids = tokenizer.encode(text);
    std::vector<TokenId> behind_space = tokenizer.encode(" " + text);
    const bool is_other = behind_space.size() == ids.size() && behind_space.front() != ids.front();
    all.push_back(std::move(ids));
    if (is_other) all.push_back(std::move(behind_space));
  }
  return all;
}

}  // namespace ferry::api
