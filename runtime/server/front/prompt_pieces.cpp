#include "runtime/server/front/prompt_pieces.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/content_hash.h"

namespace ferry {
namespace {

uint64_t hash_of(std::string_view text, uint64_t seed) { return content_hash(std::as_bytes(std::span(text)), seed); }

}  // namespace

PromptPieces::PromptPieces(std::string_view salt) : hash_(hash_of(salt, 0)) {}

void PromptPieces::add(std::string_view bytes) {
  while (!bytes.empty() && !is_full()) {
    const std::size_t num_bytes = std::min(bytes.size(), kPieceBytes - piece_.size());
    piece_.append(bytes.substr(0, num_bytes));
    bytes.remove_prefix(num_bytes);
    if (piece_.size() == kPieceBytes) end_piece();
  }
}

void PromptPieces::add_token(uint32_t id) {
  char bytes[sizeof id];
  std::memcpy(bytes, &id, sizeof id);
  add({bytes, sizeof bytes});
}

void PromptPieces::end_piece() {
  hash_ = hash_of(piece_, hash_);
  beginnings_.push_back(hash_);
  piece_.clear();
}

std::size_t PrefixMemory::match(std::span<const uint64_t> beginnings) const {
  const auto unknown =
      std::find_if(beginnings.begin(), beginnings.end(), [&](uint64_t each) { return pieces_.find(each) == nullptr; });
  return static_cast<std::size_t>(unknown - beginnings.begin());
}

void PrefixMemory::add(std::span<const uint64_t> beginnings) {
  for (auto each = beginnings.rbegin(); each != beginnings.rend(); ++each) pieces_.set(*each, {});
}

}  // namespace ferry
