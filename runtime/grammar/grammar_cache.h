#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "runtime/grammar/grammar_spec.h"

namespace ferry {

class CompiledGrammar;

/// Compiled grammars by what they were compiled from. Those that were used last are kept within a number of bytes. The others
/// are found for as long as somebody holds them. One thread at a time may call.
class GrammarCache {
 public:
  using Grammar = std::shared_ptr<const CompiledGrammar>;

  /// `max_bytes`: of the grammars that are kept, with their texts.
  explicit GrammarCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// Returns null if there is none. Else the grammar counts as used now.
  Grammar find(const GrammarSpec& spec);
  /// Adds a grammar of `num_bytes` that find() does not know.
  void add(const GrammarSpec& spec, const Grammar& grammar, int64_t num_bytes);

  int64_t kept_bytes() const { return kept_bytes_; }

 private:
  struct Entry {
    GrammarSpec spec;
    std::weak_ptr<const CompiledGrammar> grammar;
    Grammar kept;  // null: others hold it, or it is gone
    int64_t num_bytes;
  };

  void keep(Entry& entry, const Grammar& grammar);
  void drop_oldest();

  const int64_t max_bytes_;
  int64_t kept_bytes_ = 0;
  std::list<Entry> entries_;  // the one that was used last comes first
};

}  // namespace ferry
