#pragma once

#include <cstdint>
#include <string>

namespace ferry {

/// The heads of a case of attention, and how its cache is cut.
struct AttentionHeads {
  int64_t num_heads, num_kv_heads, head_dim, block_tokens;

  std::string text() const {
    return std::to_string(num_heads) + "/" + std::to_string(num_kv_heads) + " heads of " + std::to_string(head_dim) +
           ", blocks of " + std::to_string(block_tokens);
  }
};

}  // namespace ferry
