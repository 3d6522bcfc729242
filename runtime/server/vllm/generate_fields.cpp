#include "runtime/server/vllm/generate_fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/random_id.h"
#include "runtime/grammar/grammar_engine.h"
#include "runtime/server/request_bounds.h"
#include "runtime/server/request_media.h"
#include "runtime/server/siblings.h"
#include "runtime/text/reply/reply_markers.h"

namespace ferry::vllm {
namespace {

constexpr int64_t kChoicesMax = 128;

nlohmann::ordered_json parse_schema(const Constraint& constraint) {
  const GrammarLimits limits;
  return parse_ordered_json(constraint.text, constraint.field,
                            {.depth = 2 * limits.schema.depth, .bytes = limits.text_bytes, .members = limits.schema.schemas});
}

GrammarSpec grammar_of(const Constraint& constraint) {
  switch (constraint.kind) {
    case Constraint::Kind::kObject: break;
    case Constraint::Kind::kSchema: return json_schema_grammar(parse_schema(constraint), constraint.field);
    case Constraint::Kind::kRegex: return regex_grammar(std::string(constraint.text), constraint.field);
    case Constraint::Kind::kEbnf: return ebnf_grammar(std::string(constraint.text), constraint.field);
    case Constraint::Kind::kStructuralTag: return structural_tag_grammar(parse_schema(constraint), constraint.field);
    case Constraint::Kind::kChoices: return choice_grammar(constraint.choices, constraint.field);
  }
  return json_object_grammar();
}

/// As many choices as the engine could ever hold at once.
void check_room_for_choices(const EngineClient& engine, int64_t num_choices) {
  const EngineLoad load = engine.load();
  const int64_t most = int64_t{load.max_running_requests} + load.max_waiting_requests;
  if (num_choices <= most) return;
  throw_invalid("the request asks for " + std::to_string(num_choices) + " completions; allowed: at most " +
                std::to_string(most) + ", as many as run and wait at once");
}

std::vector<TokenId> encode(const GenerateFields& fields, const EngineClient& engine, const PromptTask& task) {
  if (!fields.text) return fields.ids;
  if (!fields.truncation) return engine.encode_text(*fields.text, task.check_in);
  return engine.tokenizer().encode_prompt(*fields.text, {.check_in = task.check_in});
}

std::vector<TokenId> prompt_ids(const GenerateFields& fields, const EngineClient& engine, const PromptTask& task) {
  std::vector<TokenId> ids = encode(fields, engine, task);
  if (fields.truncation) {
    const int64_t most = engine.prompt_bounds().max_tokens;
    const int64_t kept = *fields.truncation < 0 ? most : std::min(*fields.truncation, most);
    ids.erase(ids.begin(), ids.end() - std::min<int64_t>(kept, std::ssize(ids)));
  }
  if (ids.empty()) throw_invalid(fields.prompt_field + " has no tokens; allowed: at least one");
  return ids;
}

MediaPrompt make_prompt(const GenerateFields& fields, const EngineClient& engine, const PromptTask& task) {
  std::vector<TokenId> ids = prompt_ids(fields, engine, task);
  RequestMedia media(engine, task);
  if (!fields.picture_urls.empty()) engine.media();  // refuses them before any is fetched
  for (const std::string_view url : fields.picture_urls)
    media.read({.kind = Medium::Kind::kPicture, .files = {{.data = {}, .url = url}}, .fps = {}});
  return media.place(std::move(ids));
}

/// But for the seed.
SamplingParams sampling_for(const GenerateFields& fields, const EngineClient& engine, int64_t num_prompt) {
  SamplingParams sampling = fields.sampling;
  const int64_t room = std::max<int64_t>(engine.prompt_bounds().max_tokens + 1 - num_prompt, 1);
  sampling.max_tokens = static_cast<int32_t>(std::min(fields.max_tokens.value_or(room), room));
  sampling.min_tokens = std::min(sampling.min_tokens, sampling.max_tokens);
  return sampling;
}

}  // namespace

std::vector<TokenId> token_ids_of(const std::string& field, const google::protobuf::RepeatedField<uint32_t>& ids) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [](uint32_t id) { return !std::in_range<TokenId>(id); });
  if (bad != ids.end()) {
    throw_invalid(field + "[" + std::to_string(bad - ids.begin()) + "] is " + std::to_string(*bad) +
                  "; allowed: ids of the vocabulary");
  }
  return {ids.begin(), ids.end()};
}

int32_t clamped(uint32_t value) { return static_cast<int32_t>(std::min<uint32_t>(value, std::numeric_limits<int32_t>::max())); }

void check_fields(const GenerateFields& fields, const FieldNames& names, const ServerLimits& limits) {
  if (fields.text && std::ssize(*fields.text) > limits.prompt_bytes)
    refuse_size(fields.prompt_field, std::ssize(*fields.text), "bytes", limits.prompt_bytes);
  MediaCount count(limits);
  for (std::size_t i = 0; i < fields.picture_urls.size(); ++i) count.add_picture();
  if (fields.num_choices > kChoicesMax) {
    throw_invalid(std::string(names.num_choices) + " is " + std::to_string(fields.num_choices) + "; allowed: 1 to " +
                  std::to_string(kChoicesMax));
  }
  if (fields.num_choices > 1 && fields.sampling.temperature == 0.0F) {
    throw_invalid(std::string(names.num_choices) + " is " + std::to_string(fields.num_choices) +
                  " without sampling; allowed: 1 for a temperature of 0, where all completions are the same");
  }
  if (fields.max_tokens && fields.sampling.min_tokens > *fields.max_tokens) {
    throw_invalid(std::string(names.min_tokens) + " is " + std::to_string(fields.sampling.min_tokens) + "; allowed: at most " +
                  names.max_tokens + ", which is " + std::to_string(*fields.max_tokens));
  }
  if (fields.truncation && (*fields.truncation == 0 || *fields.truncation < -1)) {
    throw_invalid(std::string(names.truncation) + " is " + std::to_string(*fields.truncation) +
                  "; allowed: -1 (as many tokens as fit the context), or at least 1");
  }
  check_stop_strings(names.stop, fields.sampling.stop, limits);
}

PromptStep step_of(const GenerateFields& fields, const ServerLimits& limits) {
  return fields.picture_urls.empty() ? PromptStep{} : step_of_media(fields.picture_urls, limits);
}

const GrammarSpec* read_grammar(GenerateFields& fields) {
  if (!fields.constraint) return nullptr;
  if (!fields.constraint->spec) fields.constraint->spec = grammar_of(*fields.constraint);
  return &*fields.constraint->spec;
}

std::vector<Request> make_requests(GenerateFields& fields, EngineClient& engine, const PromptTask& task, AnswerForm form) {
  check_room_for_choices(engine, fields.num_choices);
  const GrammarSpec* const grammar = read_grammar(fields);
  const MediaPrompt prompt = make_prompt(fields, engine, task);
  const bool begins_in_thought = grammar != nullptr && !fields.constraint->holds_in_thought &&
                                 ReplyMarkers(engine.tokenizer()).ends_in_reasoning(prompt.ids);
  Request request;
  request.sampling = sampling_for(fields, engine, std::ssize(prompt.ids));
  request.sampling.seed = fields.seed ? *fields.seed : random_seed();
  request.cache_salt = fields.cache_salt;
  request.priority = fields.priority;
  request.prompt = prompt.ids;
  request.media = prompt.media;
  std::vector<Request> requests(static_cast<std::size_t>(fields.num_choices), request);
  bound_answer(requests, {.most_bytes = task.limits.answer_bytes,
                          .vocab_size = engine.model_info().vocab_size,
                          .form = form,
                          .may_shorten = !fields.max_tokens});
  for (std::size_t choice = 0; choice < requests.size(); ++choice) {
    requests[choice].sampling.seed += choice;
    if (grammar != nullptr) requests[choice].grammar = engine.grammars().make(*grammar, begins_in_thought);
  }
  make_siblings(requests);
  return requests;
}

}  // namespace ferry::vllm
