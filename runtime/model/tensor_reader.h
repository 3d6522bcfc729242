#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "runtime/model/safetensors.h"

namespace ferry {

/// Some rows of a stored matrix.
struct StoredRows {
  const TensorInfo* tensor = nullptr;
  int64_t first_row = 0;  // of the tensor seen as [product of the leading dims, cols]
  int64_t rows = 0;
  int64_t cols = 0;
};

/// Reads tensors by name with their shape and type checked, converted to the run's dtype, and remembers which were used.
///
/// Errors: Error{kInvalidArgument} naming tensor, file, what it has and what is expected.
class TensorReader {
 public:
  TensorReader(const Checkpoint& checkpoint, DType dtype, bool check_finite)
      : checkpoint_(checkpoint), dtype_(dtype), check_finite_(check_finite) {}

  DType dtype() const { return dtype_; }
  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }

  /// The tensor, checked and marked as used. Not thread-safe; everything below is.
  StoredRows find(const std::string& name, const std::vector<int64_t>& shape);
  /// Marks without reading.
  void mark_used(const std::string& name) { used_.insert(name); }
  bool is_used(std::string_view name) const { return used_.contains(std::string(name)); }

  /// The values as f32; exact for both stored types.
  std::vector<float> read_vector(const StoredRows& stored) const;
  /// The type the tensor is stored in.
  static DType stored_dtype(const StoredRows& stored);
  /// Dense [sum of rows, cols] in the run's dtype: the pieces stacked.
  Matrix read_matrix(const std::vector<StoredRows>& pieces) const;
  /// The mapped rows themselves, where type and alignment allow; otherwise a view of `copy`, which is filled.
  ConstMatrixView view_or_copy(const StoredRows& stored, Matrix& copy) const;
  /// Packs stacked pieces, quantised if a type is given (group size 0: the default, or what divides the rows), and gives their
  /// file pages back.
  std::unique_ptr<PackedMatrix> pack(MatmulBackend& matmul, const std::vector<StoredRows>& pieces, WeightUse use,
                                     const std::optional<WeightType>& quantized) const;

 private:
  void check_values(const StoredRows& stored) const;

  const Checkpoint& checkpoint_;
  DType dtype_;
  bool check_finite_;
  std::set<std::string> used_;
};

}  // namespace ferry
