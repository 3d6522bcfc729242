#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/host_rows.h"
#include "moe/expert_bank.h"
#include "moe/expert_placement.h"
#include "moe/grouped_ffn.h"
#include "moe/reply_writer.h"
#include "moe/wire.h"

namespace ferry {

/// A worker's answers to requests of several sources for one layer, computed together: each expert is read once for all of
/// them. A row depends on its expert and its token alone, so every source gets the bytes that it would get alone. Of exact
/// combines only. One thread at a time.
class MergedReplyWriter {
 public:
  struct Part {
    const RequestView* request;
    const WorkerShape* shape;              // that it was parsed with
    std::span<const LogicalExpertId> ids;  // of the layer's experts that this source's requests count
    const ExpertBank* bank;                // which has them, in that order
    std::span<std::byte> reply;            // room for it
  };

  /// `options` as of each source's ReplyWriter; `type` and `dims` are those of all banks.
  MergedReplyWriter(const ExpertDims& dims, WeightType type, Stream& stream, const ReplyWriter::Options& options);

  /// Computes them and writes every part's reply; the bytes of each, by part. All are of one layer, and have together at most
  /// as many tokens as one may have.
  std::vector<std::span<const std::byte>> write(std::span<const Part> parts);

 private:
  struct Rows;  // of one expert in one part

  std::vector<Rows> sort_by_expert(std::span<const Part> parts) const;
  MatmulRows gather_tokens(std::span<const Part> parts);

  Stream& stream_;
  const ReplyWriter::Options options_;
  const DType token_dtype_;
  const int64_t hidden_dim_;
  GroupedFfn ffn_;
  Matrix tokens_;              // [max_tokens, row_cols] of all parts, one after another
  std::vector<float> scales_;  // [max_tokens], of codes
  Matrix out_;                 // [max_tokens * top_k, hidden_dim] by expert
  DeviceRows device_tokens_, device_scales_, device_out_;
};

}  // namespace ferry
