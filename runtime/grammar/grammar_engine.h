#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/grammar/grammar_spec.h"
#include "runtime/schedule/token_grammar.h"
#include "runtime/text/tokenizer.h"

namespace ferry {

struct GrammarEngineOptions {
  std::chrono::milliseconds compile_time{10000};  // that a compilation may take, by the clock and of the processor
  int64_t compile_bytes = 256 << 20;              // of memory that it takes meanwhile
  int64_t grammar_bytes = 64 << 20;               // of one compiled grammar
  int64_t cache_bytes = 256 << 20;                // of those that are kept
};

/// A grammar over a checkpoint's vocabulary, ready for matchers. While anybody holds it, its engine finds it.
class CompiledGrammar;

/// Makes matchers of grammars over a checkpoint's vocabulary. The compiled grammars that were used last are kept while there is
/// room, and serve every request for the same grammar.
///
///     GrammarEngine grammars(tokenizer, stop_ids);
///     const GrammarSpec spec = json_schema_grammar(schema, "response_format.json_schema.schema");
///     auto compiled = grammars.find(spec);
///     if (compiled == nullptr) compiled = grammars.compile(spec, check_in);  // on a thread for it
///     request.grammar = grammars.make(spec, markers.ends_in_reasoning(prompt));
///
/// Any thread may call any method, and several may compile at once. Nobody may be in a method when the engine ends.
class GrammarEngine {
 public:
  /// `stop_ids` end a completion. `tokenizer` and `clock` must outlive the engine, and `tokenizer` its matchers. Null: there is
  /// no tokenizer, and whatever needs one throws Error{kFailedPrecondition}.
  GrammarEngine(const Tokenizer* tokenizer, std::vector<TokenId> stop_ids, const GrammarEngineOptions& options = {},
                Clock& clock = real_clock());
  GrammarEngine(const Tokenizer& tokenizer, std::vector<TokenId> stop_ids, const GrammarEngineOptions& options = {},
                Clock& clock = real_clock())
      : GrammarEngine(&tokenizer, std::move(stop_ids), options, clock) {}
  ~GrammarEngine();

  /// Whether this build has a compiler of grammars.
  static bool is_available();

  /// Returns what compile() would, if it is there already, else null. Does not block.
  std::shared_ptr<const CompiledGrammar> find(const GrammarSpec& spec);

  /// Compiles a grammar on this thread, or waits until another thread has compiled the same one. It stops and gives its memory
  /// back after compile_time, and when `check_in` throws, which is called about once for each millisecond of work and may be
  /// empty. The compiler stops where it allocates memory next.
  ///
  /// Throws what `check_in` threw, Error{kUnimplemented} if is_available() is false, and {kInvalidArgument} for a grammar that
  /// is wrong, cannot be enforced, or takes too long or too much memory to compile.
  std::shared_ptr<const CompiledGrammar> compile(const GrammarSpec& spec, const std::function<void()>& check_in = {});

  /// A matcher at its beginning, behind </think> if the prompt ends inside a thought. Compiles the grammar if find() would not
  /// find it, and throws as compile() does. What a matcher's methods throw is Error{kInvalidArgument}: the text so far can be
  /// read in so many ways that the next token takes too long to find.
  std::shared_ptr<TokenGrammar> make(const GrammarSpec& spec, bool starts_in_reasoning);

  int64_t cached_bytes() const;

 private:
  class Impl;
  Impl& impl() const;

  std::unique_ptr<Impl> impl_;  // null: there is no tokenizer
};

}  // namespace ferry
