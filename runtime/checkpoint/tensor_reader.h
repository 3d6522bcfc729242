#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/checkpoint/tensor_finder.h"

namespace ferry {

/// A matrix of the model and where the checkpoint has it: rows to stack and pack, or panels.
struct StoredMatrix {
  std::string name;  // of its panels, without a suffix
  int64_t n = 0;
  int64_t k = 0;
  WeightUse use = WeightUse::kPlain;
  std::optional<WeightType> quantized;  // absent: as the run's dtype; with its group size
  std::vector<StoredRows> pieces;       // [n, k] together; empty if there are panels
  const TensorInfo* panels = nullptr;

  /// Of the checkpoint.
  int64_t stored_bytes() const;
  /// What a packed copy takes; none of panels if they are borrowed and stay in the file.
  int64_t packed_bytes(DType dtype, bool borrows_panels) const;
  /// Of a quantised one.
  PanelShape panel_shape() const { return {n, k, *quantized, use}; }
};

/// Says when panels and rows that stay mapped are compared with their checksums. Bytes that are copied always are.
enum class MappedChecks : uint8_t {
  kAsFolder,  // if the checkpoint is small (kSmallFolderBytes) or check_finite asks for it
  kAlways,
};

/// Reads what it finds, converted to the run's dtype or as codes, and packs it. Compares bytes with their checksums first.
///
/// Errors: Error{kInvalidArgument} naming tensor, file, what it has and what is expected.
class TensorReader : public TensorFinder {
 public:
  /// `in_panels`: the checkpoint holds its quantised matrices in panels.
  TensorReader(const Checkpoint& checkpoint, DType dtype, bool check_finite, bool in_panels = false)
      : TensorFinder(checkpoint),
        dtype_(dtype),
        check_finite_(check_finite),
        checks_mapped_(check_finite || checkpoint.size() <= kSmallFolderBytes),
        in_panels_(in_panels) {}

  DType dtype() const { return dtype_; }
  /// The matrix `name` [n, k]: `tensors`, each with an equal share of the rows, or the panels, which must be
  /// there if there are no `tensors`. Not thread-safe; everything below is.
  StoredMatrix find_matrix(const std::string& name, int64_t n, int64_t k, const std::vector<std::string>& tensors,
                           const std::optional<WeightType>& quantized = std::nullopt, WeightUse use = WeightUse::kPlain);
  /// Likewise, of rows that are found already.
  StoredMatrix find_matrix(const std::string& name, std::vector<StoredRows> pieces,
                           const std::optional<WeightType>& quantized = std::nullopt, WeightUse use = WeightUse::kPlain);
  /// Whether the quantised matrices are in panels.
  bool in_panels() const { return in_panels_; }

  /// The values as f32; exact for both stored types.
  std::vector<float> read_vector(const StoredRows& stored) const;
  /// The type the tensor is stored in, if a run has it.
  static std::optional<DType> stored_dtype(const StoredRows& stored);
  /// Dense [sum of rows, cols] in the run's dtype: the pieces stacked.
  Matrix read_matrix(const std::vector<StoredRows>& pieces) const;
  /// The mapped rows themselves, where type and alignment allow; otherwise a view of `copy`, which is filled.
  ConstMatrixView view_or_copy(const StoredRows& stored, Matrix& copy) const;
  /// The pieces stacked, as codes of `type`: those of the checkpoint where the type is_as_stored(), found here otherwise.
  /// Throws as read_codes() and quantize_weights() do, with the name of file and tensor.
  QuantizedMatrix read_quantized(const std::vector<StoredRows>& pieces, WeightType type, ThreadPool* pool = nullptr) const;
  /// Packs and gives the file pages back; panels that `matmul` borrows are mapped and stay in the file, which must outlive the
  /// result. The threads of `pool` share the work if there is one.
  std::unique_ptr<PackedMatrix> pack(Matmul& matmul, const StoredMatrix& matrix, ThreadPool* pool = nullptr,
                                     MappedChecks checks = MappedChecks::kAsFolder) const;
  /// Compares the bytes of rows, and of what their format needs beside, with their checksums. Throws as check_bytes() does.
  void check_checksums(const StoredRows& stored, ThreadPool* pool = nullptr) const;
  /// Gives the pages of rows that were read back to the system, those of their other columns too, which come back when needed.
  void drop_pages(const std::vector<StoredRows>& pieces) const;

 private:
  static std::optional<WeightType> type_of(const std::vector<StoredRows>& pieces, const std::optional<WeightType>& quantized);
  static QuantizedMatrix blame(const std::vector<StoredRows>& pieces, const std::function<QuantizedMatrix()>& make);
  QuantizedMatrix read_stored_codes(const std::vector<StoredRows>& pieces, WeightType type) const;
  bool is_in_panels(const std::string& name, const std::optional<WeightType>& quantized) const;
  std::unique_ptr<PackedMatrix> adopt(Matmul& matmul, const StoredMatrix& matrix, ThreadPool* pool, MappedChecks checks) const;
  void check_values(const StoredRows& stored) const;
  void check_row(const StoredRows& stored, int64_t row, std::span<const float> values) const;

  DType dtype_;
  bool check_finite_;
  bool checks_mapped_;
  bool in_panels_;
};

}  // namespace ferry
