#pragma once

#include <span>
#include <vector>

#include "moe/combine_mode.h"
#include "moe/grouped_ffn.h"
#include "moe/wire.h"

namespace ferry {

/// A worker's answer to the rows that a source sends: its experts' results, one row for each (token, expert), or, with a fast
/// combine, already added up to one row for each token. One thread at a time.
class ReplyWriter {
 public:
  struct Options {
    int64_t max_tokens = 0;  // of a request
    int64_t top_k = 0;
    DType dtype = DType::kF32;  // of the rows that go back
    CombineMode combine = CombineMode::kExact;
  };
  /// `bank` and `matmul` outlive this.
  ReplyWriter(const ExpertBank& bank, MatmulBackend& matmul, KernelContext context, const Options& options);

  /// Bytes of the largest request and of the largest reply.
  int64_t max_request_bytes() const;
  int64_t max_reply_bytes() const;

  /// Computes and writes the reply into `reply`, which it returns the written part of. Throws Error{kInternal} for a request whose way to
  /// combine is not this rank's, with too many tokens, or that sends a token more often than it has experts.
  std::span<const std::byte> write(const RequestView& request, std::span<std::byte> reply);

 private:
  WireHeader largest_header() const;
  void add_up(const RequestView& request, ConstMatrixView rows, MatrixView out);

  const ExpertBank& bank_;
  KernelContext context_;
  Options options_;
  int64_t slots_per_token_;  // experts of a token that can be here
  GroupedFfn ffn_;
  // Of a fast combine: rows by expert, then where those of each token are.
  Matrix rows_;                              // [max_tokens * slots_per_token, hidden_dim]
  std::vector<const std::byte*> slot_rows_;  // [max_tokens, slots_per_token]
  std::vector<float> slot_weights_;          // likewise
  std::vector<int32_t> num_slots_;           // [max_tokens]
};

}  // namespace ferry
