#pragma once

#include <optional>
#include <span>

#include "kernels/host_rows.h"
#include "moe/combine_mode.h"
#include "moe/grouped_ffn.h"
#include "moe/row_adder.h"
#include "moe/wire.h"

namespace ferry {

/// Of the reply to a request that was parsed with `shape`; without what only the computation tells.
WireHeader reply_header(const WireHeader& request, const WorkerShape& shape);

/// A worker's answer to the rows that a source sends: its experts' results, one row for each (token, expert), or, with a fast
/// combine, already added up to one row for each token. One thread at a time.
class ReplyWriter {
 public:
  struct Options {
    uint32_t map_epoch = 0;  // of the map that says which experts the bank holds
    int64_t max_tokens = 0;  // of a request
    int64_t top_k = 0;
    int64_t num_experts = 0;    // of a layer, that any bank may have at most; 0: as many as the first one has
    DType dtype = DType::kF32;  // of the rows that go back
    CombineMode combine = CombineMode::kExact;
  };
  /// `bank` stays until another one is held. Throws Error{kInvalidArgument} for sizes that no message can have.
  ReplyWriter(const ExpertBank& bank, Stream& stream, const Options& options);

  /// From now on the experts of `bank`, of the map of `epoch`: of the same model, and no more of a layer than the options say.
  void hold(uint32_t epoch, const ExpertBank& bank);

  /// What requests must agree with.
  const WorkerShape& shape() const { return shape_; }

  /// Computes and writes the reply into `reply`, which it returns the written part of. `request` was parsed with shape().
  /// Throws Error{kInternal} if it sends a token more often than the token has experts.
  std::span<const std::byte> write(const RequestView& request, std::span<std::byte> reply);

 private:
  ExpertRows take(const RequestView& request);

  const ExpertBank* bank_;
  Stream& stream_;
  WorkerShape shape_;
  GroupedFfn ffn_;
  DeviceRows tokens_, scales_, out_;
  // Of a fast combine: rows by expert, and what adds them up.
  Matrix rows_;  // [max_tokens * rows_per_token, hidden_dim]
  std::optional<RowAdder> adder_;
};

}  // namespace ferry
