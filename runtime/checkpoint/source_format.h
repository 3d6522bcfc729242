#pragma once

#include <cstdint>

namespace ferry {

/// How a checkpoint stores the matrices that it has quantised; plain ones beside them tell by their type.
struct SourceFormat {
  enum class Kind : uint8_t { kPlain, kFp8Block, kGptq } kind = Kind::kPlain;
  int64_t block_rows = 128, block_cols = 128;  // of kFp8Block: weights under one scale; the last blocks may be smaller
  int64_t group_size = 128;                    // of kGptq: neighbouring columns under one scale and zero point
  int64_t zero_offset = 1;                     // of kGptq: added to the stored zero points of a word (1: "gptq", 0: "gptq_v2")
};

}  // namespace ferry
