#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/grammar/grammar_spec.h"
#include "runtime/schedule/token_grammar.h"
#include "runtime/text/tokenizer.h"

namespace ferry {

struct GrammarEngineOptions {
  std::chrono::milliseconds compile_time{10000};  // that a request waits for its grammar, and that the compiler computes for it
  int64_t compile_bytes = 512 << 20;              // of memory that this takes meanwhile
  int64_t max_waiting = 32;                       // grammars that wait for the compiler
  int64_t grammar_bytes = 64 << 20;               // of one compiled grammar
  int64_t cache_bytes = 256 << 20;                // of those that are kept
};

/// Makes matchers of grammars over a checkpoint's vocabulary. Grammars are compiled on a thread of the engine's, one at a time,
/// and kept while there is room, those that were used last.
///
///     GrammarEngine grammars(tokenizer, stop_ids);
///     request.grammar = grammars.make(json_schema_grammar(schema, "response_format.json_schema.schema"),
///                                     markers.ends_in_reasoning(prompt));
///
/// Any thread may call any method; make() blocks, and so is not for threads that others wait for.
class GrammarEngine {
 public:
  /// `stop_ids` end a completion; `tokenizer` must outlive the engine and its matchers.
  GrammarEngine(const Tokenizer& tokenizer, std::vector<TokenId> stop_ids, const GrammarEngineOptions& options = {});
  /// Stops what is being compiled.
  ~GrammarEngine();

  /// Whether this build has a compiler of grammars.
  static bool is_available();

  /// A matcher at its beginning, behind </think> if the prompt ends inside a thought. Throws Error{kUnimplemented} where
  /// is_available() is false, {kInvalidArgument} for a grammar that is wrong, cannot be enforced, or takes too long or too much
  /// memory to compile, {kResourceExhausted} if too many wait, or it waited for others alone. What a matcher's methods throw is
  /// Error{kInvalidArgument}: the text so far can be read in so many ways that the next token takes too long to find.
  std::shared_ptr<TokenGrammar> make(const GrammarSpec& spec, bool starts_in_reasoning);

  int64_t cached_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
