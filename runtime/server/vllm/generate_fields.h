#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/grammar/grammar_spec.h"
#include "runtime/schedule/request.h"
#include "runtime/server/answer_bytes.h"
#include "runtime/server/generate_context.h"
#include "runtime/server/prompt_task.h"

namespace ferry::vllm {

/// What the text of each completion has to be like, as a request says it.
struct Constraint {
  enum class Kind { kObject, kSchema, kRegex, kEbnf, kStructuralTag, kChoices };
  Kind kind = Kind::kObject;
  std::string field;                 // that says it
  std::string_view text;             // of all but kObject and kChoices
  std::vector<std::string> choices;  // of kChoices
  bool holds_in_thought = false;     // else it begins behind the thought that the prompt ends in, if it does
  std::optional<GrammarSpec> spec;   // once read_grammar() has read it
};

/// What requests of vLLM's services have in common, as they mean it. Borrows the message's strings.
struct GenerateFields {
  std::string prompt_field;              // that has the prompt
  std::optional<std::string_view> text;  // absent: it is in `ids`
  std::vector<TokenId> ids;
  std::vector<std::string_view> picture_urls;  // one for each placeholder of the prompt
  std::optional<int64_t> truncation;           // how many of the prompt's last tokens stay; -1: as many as fit the context
  SamplingParams sampling;                     // but for max_tokens and seed
  std::optional<int64_t> max_tokens;           // absent: as many as there is room for
  std::optional<uint64_t> seed;                // of the first completion; absent: one that nobody can guess
  int64_t num_choices = 1;
  std::string cache_salt;
  int64_t priority = 0;  // as Request has it
  std::optional<Constraint> constraint;
};

/// Ids as the engine has them. Throws Error{kInvalidArgument} for one that is too large for any vocabulary.
std::vector<TokenId> token_ids_of(const std::string& field, const google::protobuf::RepeatedField<uint32_t>& ids);
/// A number as the engine has it: what is larger than any that means something is the largest.
int32_t clamped(uint32_t value);

/// What is wrong with numbers and sizes and needs no prompt to be told, by the fields' names in `names`.
struct FieldNames {
  const char* num_choices;
  const char* max_tokens;
  const char* min_tokens;
  const char* truncation;
  const char* stop;
};
/// Throws Error{kInvalidArgument}.
void check_fields(const GenerateFields& fields, const FieldNames& names, const ServerLimits& limits);

PromptStep step_of(const GenerateFields& fields, const ServerLimits& limits);
const GrammarSpec* read_grammar(GenerateFields& fields);
/// As CallMessage::make_requests(), with no more tokens than the answer may have where the fields have no max_tokens.
std::vector<Request> make_requests(GenerateFields& fields, EngineClient& engine, const PromptTask& task, AnswerForm form);

}  // namespace ferry::vllm
