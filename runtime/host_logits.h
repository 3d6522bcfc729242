#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/host_rows.h"
#include "runtime/model/output_head.h"

namespace ferry {

/// The host's look at the logits of a step: of a row that needs no more the token of the highest one, which is found where the
/// logits lie, in 4 bytes; of others the values. Where the head has not computed the logits yet (OutputHead::pending), it does
/// so when somebody wants values, and finds the tokens without where nobody does.
///
///   logits.set(trunk.forward(...));
///   logits.want_token(0);
///   logits.want_values(1);
///   logits.fetch();
///   use(logits.token(0), logits.values(1));
///
/// Sized at construction; allocates nothing afterwards. One thread at a time.
class HostLogits {
 public:
  struct Options {
    DType dtype = DType::kBF16;
    int64_t max_rows = 0;
    int64_t vocab_size = 0;            // columns
    int32_t vocab_size_effective = 0;  // ids from here on are padding and never chosen
    bool has_values = true;            // false: only tokens are ever wanted, which spares the memory for values
  };
  /// The stream outlives it.
  HostLogits(Stream& stream, const Options& options);

  /// Logits [R, vocab] that the stream computes, which stay as they are until the next are set; with a head those that it is
  /// still to compute. Nothing of them is wanted yet.
  void set(ConstMatrixView logits, OutputHead* pending = nullptr);
  int64_t num_rows() const { return logits_.rows; }

  /// Of a row one of both.
  void want_token(int64_t row) { want(row, Want::kToken); }
  void want_values(int64_t row) { want(row, Want::kValues); }
  /// Gets what is wanted. Waits for the step, also if nothing is.
  void fetch();

  /// Which of both was wanted of a row.
  bool has_values(int64_t row) const { return wants_.at(static_cast<std::size_t>(row)) == Want::kValues; }

  /// What was fetched of a row. The highest logit's id, the lowest one of equals, or kNoToken where all are NaN or minus
  /// infinity.
  TokenId token(int64_t row) const;
  /// [1, vocab_size_effective]
  ConstMatrixView values(int64_t row) const;

  /// Fetches of all rows the tokens [R], or the values [R, vocab], padding included. Valid until the next fetch.
  std::span<const TokenId> all_tokens();
  ConstMatrixView all_values();

 private:
  enum class Want : uint8_t { kNothing, kToken, kValues };

  void want(int64_t row, Want what);
  void want_all(Want what);
  bool find_tokens();
  void ask_tokens();
  void ask_values();
  ConstMatrixView host_values() const { return stream_->is_on_host() ? logits_ : copy_.view(); }

  Stream* stream_;
  int32_t vocab_size_effective_;
  ConstMatrixView logits_;           // [R, vocab] where they are computed
  OutputHead* pending_ = nullptr;    // that computes them; null: they are
  std::vector<Want> wants_;          // [R] since set()
  std::vector<int32_t> token_rows_;  // of fetch()
  Mirror<TokenId> tokens_;           // [max_rows]
  Matrix copy_;                      // [max_rows, vocab] the host's; empty where memory is shared
};

}  // namespace ferry
