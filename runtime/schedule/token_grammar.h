#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/types.h"

namespace ferry {

/// What a request's completion has to be like, and how far into that it is: a matcher over token ids that belongs to one
/// request, from its first token on. It is told each token of the completion once, in order; a sequence that is preempted keeps
/// it as it is.
///
/// A step asks for the mask of each row that chooses a token: of rows behind drafts it accepts the drafts, asks, and rolls
/// back. That may happen on a thread of the sampler's while the forward pass runs; what a grammar shares with others (a
/// compiled schema, the vocabulary's texts) must bear that. One thread at a time calls the methods of one grammar. What one
/// throws ends the request with kError.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;

  /// Which ids may come next: id i may if bit i % 32 of bits[i / 32] is set. `bits` has one for every id that the model has
  /// logits of, and holds anything before; bits behind the last id are not looked at. False: all ids may, and nothing was
  /// written. Is not called when is_terminated().
  virtual bool fill_mask(std::span<uint32_t> bits) = 0;

  /// Takes in the next token. False, and nothing has changed, if it may not come next.
  virtual bool accept(TokenId id) = 0;

  /// Forgets the last `num_tokens` that were accepted, at most the drafts of a step.
  virtual void rollback(int64_t num_tokens) = 0;

  /// Whether no token may follow those that were accepted: the sequence ends there, as at a stop id, whatever ignore_eos says.
  virtual bool is_terminated() const = 0;
};

}  // namespace ferry
