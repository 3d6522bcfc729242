#include "runtime/grammar/grammar_cache.h"

#include <algorithm>
#include <utility>

namespace ferry {

GrammarCache::Grammar GrammarCache::find(const GrammarSpec& spec) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.spec == spec; });
  if (found == entries_.end()) return nullptr;
  Grammar grammar = found->grammar.lock();
  if (grammar == nullptr) {
    entries_.erase(found);
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, found);
  keep(*found, grammar);
  return grammar;
}

void GrammarCache::add(const GrammarSpec& spec, const Grammar& grammar, int64_t num_bytes) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.grammar.expired(); });
  Entry& entry = entries_.emplace_front(Entry{.spec = spec, .grammar = grammar, .kept = nullptr, .num_bytes = num_bytes});
  keep(entry, grammar);
}

/// Needs the entry to be the first.
void GrammarCache::keep(Entry& entry, const Grammar& grammar) {
  if (entry.kept != nullptr || entry.num_bytes > max_bytes_) return;
  entry.kept = grammar;
  kept_bytes_ += entry.num_bytes;
  while (kept_bytes_ > max_bytes_) drop_oldest();
}

void GrammarCache::drop_oldest() {
  const auto oldest =
      std::find_if(entries_.rbegin(), entries_.rend(), [](const Entry& entry) { return entry.kept != nullptr; });
  kept_bytes_ -= oldest->num_bytes;
  oldest->kept = nullptr;
}

}  // namespace ferry
