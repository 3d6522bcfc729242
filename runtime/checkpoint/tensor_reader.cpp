#include "runtime/checkpoint/tensor_reader.h"

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

/// The type with its group size: where none was asked for, the default or the largest smaller one that divides rows of `k`.
std::optional<WeightType> with_group_size(const std::optional<WeightType>& type, int64_t k) {
  if (!type || type->format != WeightFormat::kInt4 || type->group_size != 0) return type;
  return WeightType{type->format, k % kDefaultGroupSize == 0 ? kDefaultGroupSize : kDefaultGroupSize / 2};
}

bool is_aligned(const std::byte* data, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) == 0;
}

}  // namespace

int64_t StoredMatrix::stored_bytes() const {
  if (panels != nullptr) return panels->bytes;
  int64_t bytes = 0;
  for (const StoredRows& piece : pieces) bytes += piece.rows * piece.cols * stored_type_bytes(piece.tensor->dtype);
  return bytes;
}

int64_t StoredMatrix::packed_bytes(DType dtype) const {
  if (panels != nullptr) return 0;
  if (!quantized) return n * k * dtype_bytes(dtype);
  if (quantized->format == WeightFormat::kInt8) return n * k;
  return n * k / 2 + n * k / quantized->group_size * 2;
}

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

StoredMatrix TensorReader::find_matrix(const std::string& name, int64_t n, int64_t k, const std::vector<std::string>& tensors,
                                       const std::optional<WeightType>& quantized, WeightUse use) {
  StoredMatrix matrix{.name = name, .n = n, .k = k, .use = use, .quantized = with_group_size(quantized, k)};
  if (!quantized || !in_panels_) {
    for (const std::string& tensor : tensors) matrix.pieces.push_back(find(tensor, {n / std::ssize(tensors), k}));
    return matrix;
  }
  const PanelShape shape = matrix.panel_shape();
  const std::string stored_name = panels_name(name);
  matrix.panels = checkpoint_.find(stored_name);
  if (matrix.panels == nullptr)
    throw_invalid("checkpoint: tensor " + stored_name + " is missing; expected " + panels_note(shape));
  try {
    check_quantizable(k, shape.type);
  } catch (const Error& error) {
    throw_invalid("checkpoint: tensor " + stored_name + ": " + error.what());
  }
  check_panels(*matrix.panels, shape);
  used_.insert(stored_name);
  return matrix;
}

StoredMatrix TensorReader::find_matrix(const std::string& name, std::vector<StoredRows> pieces,
                                       const std::optional<WeightType>& quantized, WeightUse use) {
  int64_t rows = 0;
  for (const StoredRows& piece : pieces) rows += piece.rows;
  const int64_t k = pieces.front().cols;
  if (quantized && in_panels_) return find_matrix(name, rows, k, {}, quantized, use);
  return {.name = name,
          .n = rows,
          .k = k,
          .use = use,
          .quantized = with_group_size(quantized, k),
          .pieces = std::move(pieces),
          .panels = nullptr};
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

std::unique_ptr<PackedMatrix> TensorReader::adopt(MatmulBackend& matmul, const StoredMatrix& matrix) const {
  const TensorInfo& panels = *matrix.panels;
  checkpoint_.fetch_pages(panels);
  if (check_finite_) check_panels_finite(panels, matrix.panel_shape());
  return matmul.adopt(matrix.n, matrix.k, *matrix.quantized, matrix.use, {panels.data, static_cast<std::size_t>(panels.bytes)});
}

std::unique_ptr<PackedMatrix> TensorReader::pack(MatmulBackend& matmul, const StoredMatrix& matrix, ThreadPool* pool) const {
  if (matrix.panels != nullptr) return adopt(matmul, matrix);
  const auto pack_view = [&](ConstMatrixView weights) {
    if (!matrix.quantized) return matmul.pack(weights, matrix.use, pool);
    return matmul.pack(quantize_weights(weights, *matrix.quantized, pool), matrix.use, pool);
  };
  const StoredRows& first = matrix.pieces.front();
  std::unique_ptr<PackedMatrix> packed;
  try {
    if (matrix.pieces.size() == 1 && stored_dtype(first) == dtype_ && is_aligned(first_byte(first), dtype_bytes(dtype_))) {
      check_values(first);
      packed = pack_view({first_byte(first), dtype_, first.rows, first.cols, first.cols});
    } else {
      packed = pack_view(read_matrix(matrix.pieces).view());
    }
  } catch (const Error& error) {
    if (!matrix.quantized || error.code() != ErrorCode::kInvalidArgument) throw;
    throw_invalid(std::string(first.tensor->file) + ": tensor " + first.tensor->name + ": " + error.what());
  }
  drop_pages(matrix.pieces);
  return packed;
}

void TensorReader::drop_pages(const std::vector<StoredRows>& pieces) const {
  for (const StoredRows& piece : pieces) {
    const int64_t element = stored_type_bytes(piece.tensor->dtype);
    checkpoint_.drop_pages(*piece.tensor, piece.first_row * piece.cols * element, piece.rows * piece.cols * element);
  }
}

}  // namespace ferry
