#include "runtime/checkpoint/tensor_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::initializer_list<StoredType> kNumbers{StoredType::kF32, StoredType::kBF16, StoredType::kF16};
constexpr std::initializer_list<StoredType> kNumbersOrFp8{StoredType::kF32, StoredType::kBF16, StoredType::kF16,
                                                          StoredType::kF8E4M3};

/// "X" of "X.weight".
std::string without_weight(const std::string& name) { return name.substr(0, name.size() - kWeight.size()); }

const std::byte* first_byte(const StoredRows& stored) {
  return stored.tensor->data + stored.first_row * stored.cols * stored_type_bytes(stored.tensor->dtype);
}

/// Calls fn(row, values of the row) for every row.
template <class Fn>
void for_each_row(const StoredRows& stored, Fn&& fn) {
  std::vector<float> values(static_cast<std::size_t>(stored.cols));
  for (int64_t r = 0; r < stored.rows; ++r) {
    read_row(stored, r, values);
    fn(r, values);
  }
}

std::string shape_string(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// What a checkpoint says of a matrix whose packed codes no longer tell.
void check_stored_shape(const TensorInfo& tensor, const std::vector<int64_t>& expected) {
  std::vector<int64_t> stored(2);
  std::memcpy(stored.data(), tensor.data, stored.size() * sizeof(int64_t));
  if (stored == expected) return;
  throw_invalid(std::string(tensor.file) + ": tensor " + tensor.name + " says " + shape_string(stored) +
                "; config.json asks for " + shape_string(expected));
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
  for (const StoredRows& piece : pieces) bytes += piece.stored_bytes();
  return bytes;
}

int64_t StoredMatrix::packed_bytes(DType dtype) const {
  if (panels != nullptr) return 0;
  if (!quantized) return n * k * dtype_bytes(dtype);
  return panel_shape().bytes();
}

bool TensorReader::has(const std::string& name) const {
  if (checkpoint_.find(name) != nullptr) return true;
  return format_.layout != nullptr && name.ends_with(kWeight) &&
         checkpoint_.find(without_weight(name) + std::string(format_.layout->codes)) != nullptr;
}

/// The tensor, marked as used.
const TensorInfo& TensorReader::take(const std::string& name, const std::vector<int64_t>& shape,
                                     std::initializer_list<StoredType> types) {
  const TensorInfo* tensor = checkpoint_.find(name);
  if (tensor == nullptr) throw_invalid("checkpoint: tensor " + name + " is missing; expected shape " + shape_string(shape));
  if (tensor->shape != shape) {
    throw_invalid(std::string(tensor->file) + ": tensor " + name + " has shape " + tensor->shape_string() +
                  "; config.json asks for " + shape_string(shape));
  }
  if (std::find(types.begin(), types.end(), tensor->dtype) == types.end()) {
    std::string allowed;
    for (const StoredType type : types) allowed += (allowed.empty() ? "" : ", ") + std::string(stored_type_name(type));
    throw_invalid(std::string(tensor->file) + ": tensor " + name + " has type " + stored_type_name(tensor->dtype) +
                  "; allowed: " + allowed);
  }
  used_.insert(name);
  return *tensor;
}

StoredRows TensorReader::find(const std::string& name, const std::vector<int64_t>& shape) {
  const bool is_integers = checkpoint_.find(name) == nullptr && has(name);
  if (is_integers && shape.size() == 2) return find_integers(without_weight(name), shape[0], shape[1]);
  const bool may_be_fp8 = format_.kind == SourceFormat::Kind::kFp8Block && shape.size() >= 2;
  const TensorInfo& tensor = take(name, shape, may_be_fp8 ? kNumbersOrFp8 : kNumbers);
  StoredRows rows{.tensor = &tensor, .rows = 1, .cols = shape.back()};
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows.rows *= shape[i];
  rows.matrix_rows = shape.size() >= 2 ? shape[shape.size() - 2] : 1;
  return tensor.dtype == StoredType::kF8E4M3 ? find_fp8(tensor, name, rows) : rows;
}

/// With its scales: "X.weight_scale_inv", a factor in spite of its name, or "X.weight_scale".
StoredRows TensorReader::find_fp8(const TensorInfo& tensor, const std::string& name, StoredRows rows) {
  rows.format = format_;
  const int64_t block_cols = format_.block_cols == 0 ? rows.cols : format_.block_cols;
  std::vector<int64_t> shape = tensor.shape;
  shape[shape.size() - 2] = ceil_divide(rows.matrix_rows, format_.block_rows);
  shape.back() = ceil_divide(rows.cols, block_cols);
  rows.scales = &take(name + std::string(format_.scale_suffix), shape, kNumbers);
  return rows;
}

/// With its scales, zero points and what else the layout has.
StoredRows TensorReader::find_integers(const std::string& base, int64_t n, int64_t k) {
  const IntegerLayout& layout = *format_.layout;
  const auto named = [&](std::string_view suffix) { return base + std::string(suffix); };
  const auto shape_of = [&](int64_t rows, int64_t cols) {
    return layout.is_transposed ? std::vector<int64_t>{cols, rows} : std::vector<int64_t>{rows, cols};
  };
  StoredRows rows{.rows = n, .cols = k, .format = format_, .matrix_rows = n};
  const auto codes_shape = [&](int64_t bits) {
    const int64_t per_word = 32 / bits;
    return layout.is_word_of_rows ? shape_of(ceil_divide(n, per_word), k) : shape_of(n, ceil_divide(k, per_word));
  };
  rows.format.bits = checkpoint_.find(named(layout.codes))->shape == codes_shape(8) ? 8 : 4;
  rows.tensor = &take(named(layout.codes), codes_shape(rows.format.bits), {StoredType::kI32});
  const int64_t groups = format_.group_size == 0 ? 1 : ceil_divide(k, format_.group_size);
  rows.scales = &take(named(layout.scales), shape_of(n, groups), kNumbers);
  if (format_.has_zeros)
    rows.zeros = &take(named(layout.zeros), shape_of(ceil_divide(n, rows.format.codes_per_word()), groups), {StoredType::kI32});
  if (format_.has_group_index) rows.group_index = &take(named(layout.group_index), {k}, {StoredType::kI32});
  if (!layout.shape.empty()) {
    rows.shape = &take(named(layout.shape), {2}, {StoredType::kI64});
    check_stored_shape(*rows.shape, {n, k});
  }
  return rows;
}

/// What becomes of a matrix that is to be held in codes of the checkpoint: these, where it has any.
std::optional<WeightType> TensorReader::type_of(const std::vector<StoredRows>& pieces,
                                                const std::optional<WeightType>& quantized) {
  if (!quantized || !quantized->is_as_stored()) return with_group_size(quantized, pieces.front().cols);
  const bool has_codes = std::ranges::none_of(pieces, [](const StoredRows& piece) { return piece.is_plain(); });
  return has_codes && stored_codes_type(pieces.front().format) == quantized ? quantized : std::nullopt;
}

bool TensorReader::is_in_panels(const std::string& name, const std::optional<WeightType>& quantized) const {
  return quantized && in_panels_ && (!quantized->is_as_stored() || checkpoint_.find(panels_name(name)) != nullptr);
}

StoredMatrix TensorReader::find_matrix(const std::string& name, int64_t n, int64_t k, const std::vector<std::string>& tensors,
                                       const std::optional<WeightType>& quantized, WeightUse use) {
  StoredMatrix matrix{.name = name, .n = n, .k = k, .use = use, .quantized = with_group_size(quantized, k)};
  if (!is_in_panels(name, quantized)) {
    for (const std::string& tensor : tensors) matrix.pieces.push_back(find(tensor, {n / std::ssize(tensors), k}));
    matrix.quantized = type_of(matrix.pieces, quantized);
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
  if (is_in_panels(name, quantized)) return find_matrix(name, rows, k, {}, quantized, use);
  return {.name = name,
          .n = rows,
          .k = k,
          .use = use,
          .quantized = type_of(pieces, quantized),
          .pieces = std::move(pieces),
          .panels = nullptr};
}

std::optional<DType> TensorReader::stored_dtype(const StoredRows& stored) {
  if (stored.tensor->dtype == StoredType::kF32) return DType::kF32;
  return stored.tensor->dtype == StoredType::kBF16 ? std::optional(DType::kBF16) : std::nullopt;
}

void TensorReader::check_row(const StoredRows& stored, int64_t row, std::span<const float> values) const {
  for (std::size_t c = 0; check_finite_ && c < values.size(); ++c) {
    if (std::isfinite(values[c])) continue;
    throw_invalid(std::string(stored.tensor->file) + ": tensor " + stored.tensor->name + " has " + std::to_string(values[c]) +
                  " at row " + std::to_string(stored.first_row + row) + ", column " + std::to_string(c) +
                  "; weights must be finite");
  }
}

void TensorReader::check_values(const StoredRows& stored) const {
  if (!check_finite_) return;
  for_each_row(stored, [&](int64_t row, std::span<const float> values) { check_row(stored, row, values); });
}

std::vector<float> TensorReader::read_vector(const StoredRows& stored) const {
  std::vector<float> all;
  all.reserve(static_cast<std::size_t>(stored.rows * stored.cols));
  for_each_row(stored, [&](int64_t row, std::span<const float> values) {
    check_row(stored, row, values);
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

Matrix TensorReader::read_matrix(const std::vector<StoredRows>& pieces) const {
  int64_t rows = 0;
  for (const StoredRows& piece : pieces) rows += piece.rows;
  Matrix matrix(dtype_, rows, pieces.front().cols);
  int64_t first = 0;
  for (const StoredRows& piece : pieces) {
    FERRY_CHECK_EQ(piece.cols, matrix.cols());
    visit_dtype(dtype_, [&]<class T>() {
      if (piece.is_plain() && stored_dtype(piece) == dtype_) {
        check_values(piece);
        std::memcpy(matrix.view().row<T>(first), first_byte(piece),
                    static_cast<std::size_t>(piece.rows * piece.cols) * sizeof(T));
        return;
      }
      for_each_row(piece, [&](int64_t row, std::span<const float> values) {
        check_row(piece, row, values);
        T* to = matrix.view().row<T>(first + row);
        for (std::size_t c = 0; c < values.size(); ++c) to[c] = from_float<T>(values[c]);
      });
    });
    first += piece.rows;
  }
  return matrix;
}

ConstMatrixView TensorReader::view_or_copy(const StoredRows& stored, Matrix& copy) const {
  const std::optional<DType> dtype = stored_dtype(stored);
  if (stored.is_plain() && dtype && is_aligned(first_byte(stored), dtype_bytes(*dtype))) {
    check_values(stored);
    return {first_byte(stored), *dtype, stored.rows, stored.cols, stored.cols};
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

QuantizedMatrix TensorReader::read_quantized(const std::vector<StoredRows>& pieces, WeightType type, ThreadPool* pool) const {
  if (type.is_as_stored()) return read_stored_codes(pieces, type);
  const Matrix weights = read_matrix(pieces);
  return blame(pieces, [&] { return quantize_weights(weights.view(), type, pool); });
}

/// What `make` returns; what it throws begins with the file and the tensor of the first piece.
QuantizedMatrix TensorReader::blame(const std::vector<StoredRows>& pieces, const std::function<QuantizedMatrix()>& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    const TensorInfo& tensor = *pieces.front().tensor;
    throw_invalid(std::string(tensor.file) + ": tensor " + tensor.name + ": " + error.what());
  }
}

QuantizedMatrix TensorReader::read_stored_codes(const std::vector<StoredRows>& pieces, WeightType type) const {
  QuantizedMatrix matrix{.type = type, .k = pieces.front().cols, .group = type.group_size};
  blame(pieces, [&] {
    check_quantizable(matrix.k, type);
    return QuantizedMatrix();
  });
  for (const StoredRows& piece : pieces) matrix.n += piece.rows;
  const auto cols = static_cast<std::size_t>(matrix.k), groups = static_cast<std::size_t>(matrix.num_groups());
  const auto rows = static_cast<std::size_t>(matrix.n), zeros = type.is_integer() ? groups : 0;
  matrix.codes.resize(rows * cols);
  matrix.scales.resize(rows * groups);
  matrix.zero_points.resize(rows * zeros);
  std::size_t at = 0;
  for (const StoredRows& piece : pieces) {
    for (int64_t r = 0; r < piece.rows; ++r, ++at) {
      read_codes(piece, r,
                 {.codes = std::span(matrix.codes).subspan(at * cols, cols),
                  .scales = std::span(matrix.scales).subspan(at * groups, groups),
                  .zero_points = std::span(matrix.zero_points).subspan(at * zeros, zeros)});
    }
  }
  return matrix;
}

std::unique_ptr<PackedMatrix> TensorReader::pack(MatmulBackend& matmul, const StoredMatrix& matrix, ThreadPool* pool) const {
  if (matrix.panels != nullptr) return adopt(matmul, matrix);
  const StoredRows& first = matrix.pieces.front();
  const bool is_in_place = matrix.pieces.size() == 1 && first.is_plain() && stored_dtype(first) == dtype_ &&
                           is_aligned(first_byte(first), dtype_bytes(dtype_));
  std::unique_ptr<PackedMatrix> packed;
  if (is_in_place) {
    check_values(first);
    const ConstMatrixView weights{first_byte(first), dtype_, first.rows, first.cols, first.cols};
    const auto quantize = [&] { return quantize_weights(weights, *matrix.quantized, pool); };
    packed = matrix.quantized ? matmul.pack(blame(matrix.pieces, quantize), matrix.use, pool)
                              : matmul.pack(weights, matrix.use, pool);
  } else if (matrix.quantized) {
    packed = matmul.pack(read_quantized(matrix.pieces, *matrix.quantized, pool), matrix.use, pool);
  } else {
    packed = matmul.pack(read_matrix(matrix.pieces).view(), matrix.use, pool);
  }
  drop_pages(matrix.pieces);
  return packed;
}

void TensorReader::drop_pages(const std::vector<StoredRows>& pieces) const {
  for (const StoredRows& piece : pieces) {
    const int64_t row_bytes = piece.row_bytes();
    if (row_bytes == 0) continue;  // all pages hold some of each row
    checkpoint_.drop_pages(*piece.tensor, piece.first_row * row_bytes, piece.rows * row_bytes);
  }
}

}  // namespace ferry
