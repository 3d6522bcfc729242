#include "runtime/model/tensor_reader.h"

#include <cmath>
#include <cstring>

#include "runtime/base/error.h"

namespace ferry {
namespace {

const std::byte* first_byte(const StoredRows& stored) {
  return stored.tensor->data + stored.first_row * stored.cols * stored_type_bytes(stored.tensor->dtype);
}

template <class From>
float load(const std::byte* data, int64_t i) {
  From value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
  return to_float(value);
}

/// Calls fn(i, value as f32) for every element.
template <class Fn>
void for_each_value(const StoredRows& stored, Fn&& fn) {
  const std::byte* data = first_byte(stored);
  const int64_t count = stored.rows * stored.cols;
  if (stored.tensor->dtype == StoredType::kF32) {
    for (int64_t i = 0; i < count; ++i) fn(i, load<float>(data, i));
  } else {
    for (int64_t i = 0; i < count; ++i) fn(i, load<bfloat16>(data, i));
  }
}

std::string shape_string(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

bool is_aligned(const std::byte* data, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) == 0;
}

}  // namespace

StoredRows TensorReader::find(const std::string& name, const std::vector<int64_t>& shape) {
  const TensorInfo* tensor = checkpoint_.find(name);
  if (tensor == nullptr) throw_invalid("checkpoint: tensor " + name + " is missing; expected shape " + shape_string(shape));
  if (tensor->shape != shape) {
    throw_invalid(std::string(tensor->file) + ": tensor " + name + " has shape " + tensor->shape_string() +
                  "; config.json asks for " + shape_string(shape));
  }
  if (tensor->dtype != StoredType::kF32 && tensor->dtype != StoredType::kBF16) {
    throw_invalid(std::string(tensor->file) + ": tensor " + name + " has type " + stored_type_name(tensor->dtype) +
                  "; allowed: F32, BF16");
  }
  used_.insert(name);
  int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return {tensor, 0, rows, shape.back()};
}

DType TensorReader::stored_dtype(const StoredRows& stored) {
  return stored.tensor->dtype == StoredType::kF32 ? DType::kF32 : DType::kBF16;
}

void TensorReader::check_values(const StoredRows& stored) const {
  if (!check_finite_) return;
  for_each_value(stored, [&](int64_t i, float value) {
    if (std::isfinite(value)) return;
    throw_invalid(std::string(stored.tensor->file) + ": tensor " + stored.tensor->name + " has " + std::to_string(value) +
                  " at row " + std::to_string(stored.first_row + i / stored.cols) + ", column " +
                  std::to_string(i % stored.cols) + "; weights must be finite");
  });
}

std::vector<float> TensorReader::read_vector(const StoredRows& stored) const {
  check_values(stored);
  std::vector<float> values(static_cast<std::size_t>(stored.rows * stored.cols));
  for_each_value(stored, [&](int64_t i, float value) { values[static_cast<std::size_t>(i)] = value; });
  return values;
}

Matrix TensorReader::read_matrix(const std::vector<StoredRows>& pieces) const {
  int64_t rows = 0;
  for (const StoredRows& piece : pieces) rows += piece.rows;
  Matrix matrix(dtype_, rows, pieces.front().cols);
  int64_t row = 0;
  for (const StoredRows& piece : pieces) {
    FERRY_CHECK_EQ(piece.cols, matrix.cols());
    check_values(piece);
    visit_dtype(dtype_, [&]<class T>() {
      T* to = matrix.view().row<T>(row);
      if (stored_dtype(piece) == dtype_) {
        std::memcpy(to, first_byte(piece), static_cast<std::size_t>(piece.rows * piece.cols) * sizeof(T));
      } else {
        for_each_value(piece, [to](int64_t i, float value) { to[i] = from_float<T>(value); });
      }
    });
    row += piece.rows;
  }
  return matrix;
}

ConstMatrixView TensorReader::view_or_copy(const StoredRows& stored, Matrix& copy) const {
  const DType dtype = stored_dtype(stored);
  if (is_aligned(first_byte(stored), dtype_bytes(dtype))) {
    check_values(stored);
    return {first_byte(stored), dtype, stored.rows, stored.cols, stored.cols};
  }
  copy = read_matrix({stored});
  return copy.view();
}

namespace {

/// The type with its group size: where none was asked for, the default or the largest smaller one that divides rows of `k`.
WeightType with_group_size(WeightType type, int64_t k) {
  if (type.format != WeightFormat::kInt4 || type.group_size != 0) return type;
  return {type.format, k % kDefaultGroupSize == 0 ? kDefaultGroupSize : kDefaultGroupSize / 2};
}

std::unique_ptr<PackedMatrix> pack_view(MatmulBackend& matmul, ConstMatrixView weights, WeightUse use,
                                        const std::optional<WeightType>& quantized) {
  if (!quantized) return matmul.pack(weights, use);
  return matmul.pack(quantize_weights(weights, with_group_size(*quantized, weights.cols)), use);
}

}  // namespace

std::unique_ptr<PackedMatrix> TensorReader::pack(MatmulBackend& matmul, const std::vector<StoredRows>& pieces, WeightUse use,
                                                 const std::optional<WeightType>& quantized) const {
  const StoredRows& first = pieces.front();
  std::unique_ptr<PackedMatrix> packed;
  try {
    if (pieces.size() == 1 && stored_dtype(first) == dtype_ && is_aligned(first_byte(first), dtype_bytes(dtype_))) {
      check_values(first);
      packed = pack_view(matmul, {first_byte(first), dtype_, first.rows, first.cols, first.cols}, use, quantized);
    } else {
      packed = pack_view(matmul, read_matrix(pieces).view(), use, quantized);
    }
  } catch (const Error& error) {
    if (!quantized || error.code() != ErrorCode::kInvalidArgument) throw;
    throw_invalid(std::string(first.tensor->file) + ": tensor " + first.tensor->name + ": " + error.what());
  }
  for (const StoredRows& piece : pieces) {
    const int64_t element = stored_type_bytes(piece.tensor->dtype);
    checkpoint_.drop_pages(*piece.tensor, piece.first_row * piece.cols * element, piece.rows * piece.cols * element);
  }
  return packed;
}

}  // namespace ferry
