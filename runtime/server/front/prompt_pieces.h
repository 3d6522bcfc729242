#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/server/front/recent_map.h"

// Prompts by their beginnings, as far as a router can tell without a tokenizer: the text, or the tokens, in pieces of one size.

namespace ferry {

/// Hashes of a prompt's beginnings. The k-th one stands for the prompt's first k + 1 pieces of kPieceBytes, and depends on all
/// of them: each piece is hashed with the hash of those before it as its seed. What follows the last whole piece does not
/// count.
class PromptPieces {
 public:
  static constexpr std::size_t kPieceBytes = 256;  // about a unit of the prefix cache, which is 64 tokens
  static constexpr std::size_t kMaxPieces = 4096;  // what is behind the first MiB of a prompt says nothing new

  /// Prompts of different salts have no beginning in common, as in the coordinators' caches.
  explicit PromptPieces(std::string_view salt);

  /// The prompt goes on with `bytes`.
  void add(std::string_view bytes);
  /// It goes on with a token, which counts as four bytes.
  void add_token(uint32_t id);
  /// Nothing that is added counts any more.
  bool is_full() const { return beginnings_.size() == kMaxPieces; }
  const std::vector<uint64_t>& beginnings() const { return beginnings_; }

 private:
  void end_piece();

  uint64_t hash_;
  std::string piece_;  // fewer than kPieceBytes
  std::vector<uint64_t> beginnings_;
};

/// What one coordinator has most likely computed of prompts: the beginnings of those that it was given last.
class PrefixMemory {
 public:
  explicit PrefixMemory(std::size_t max_pieces) : pieces_(max_pieces) {}

  /// How many of `beginnings`, from the first one on, it has.
  std::size_t match(std::span<const uint64_t> beginnings) const;
  /// It has all of them now. Of one prompt the last piece is forgotten first.
  void add(std::span<const uint64_t> beginnings);
  std::size_t size() const { return pieces_.size(); }
  void clear() { pieces_.clear(); }

 private:
  struct Nothing {};
  RecentMap<Nothing> pieces_;
};

}  // namespace ferry
