#include "runtime/checkpoint/tensor_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"

namespace ferry {
namespace {

/// The mapped values of plain rows of `dtype`.
ConstMatrixView view_of(const StoredRows& stored, DType dtype) {
  return {stored.row_data(0), dtype, stored.rows, stored.cols, stored.matrix_cols};
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

int64_t StoredMatrix::packed_bytes(DType dtype, bool borrows_panels) const {
  if (panels != nullptr && borrows_panels) return 0;
  if (!quantized) return n * k * dtype_bytes(dtype);
  return panel_shape().bytes();
}

/// What becomes of a matrix that is to be held in codes of the checkpoint: these, where it has any.
std::optional<WeightType> TensorReader::type_of(const std::vector<StoredRows>& pieces,
                                                const std::optional<WeightType>& quantized) {
  if (!quantized || !quantized->is_as_stored()) return with_group_size(quantized, pieces.front().cols);
  const bool has_codes = std::ranges::none_of(pieces, [](const StoredRows& piece) { return piece.is_plain(); });
  return has_codes && stored_codes_type(pieces.front().format) == quantized ? quantized : std::nullopt;
}

bool TensorReader::is_in_panels(const std::string& name, const std::optional<WeightType>& quantized) const {
  return quantized && in_panels_ && (!quantized->is_as_stored() || checkpoint().find(panels_name(name)) != nullptr);
}

StoredMatrix TensorReader::find_matrix(const std::string& name, int64_t n, int64_t k, const std::vector<std::string>& tensors,
                                       const std::optional<WeightType>& quantized, WeightUse use) {
  StoredMatrix matrix{.name = name, .n = n, .k = k, .use = use, .quantized = with_group_size(quantized, k)};
  if (!tensors.empty() && !is_in_panels(name, quantized)) {
    for (const std::string& tensor : tensors) matrix.pieces.push_back(find(tensor, {n / std::ssize(tensors), k}));
    matrix.quantized = type_of(matrix.pieces, quantized);
    return matrix;
  }
  const PanelShape shape = matrix.panel_shape();
  const std::string stored_name = panels_name(name);
  matrix.panels = checkpoint().find(stored_name);
  if (matrix.panels == nullptr)
    throw_invalid("checkpoint: tensor " + stored_name + " is missing; expected " + panels_note(shape));
  try {
    check_quantizable(k, shape.type);
  } catch (const Error& error) {
    throw_invalid("checkpoint: tensor " + stored_name + ": " + error.what());
  }
  check_panels(*matrix.panels, shape);
  mark_as_used(stored_name);
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

void TensorReader::check_checksums(const StoredRows& stored, ThreadPool* pool) const {
  const int64_t row_bytes = stored.row_bytes();
  const bool has_whole_rows = row_bytes > 0 && stored.cols == stored.matrix_cols;  // others share their bytes
  const int64_t begin = row_bytes == 0 ? 0 : stored.first_row * row_bytes;
  const int64_t bytes = row_bytes == 0 ? stored.tensor->bytes : stored.rows * row_bytes;
  check_bytes(*stored.tensor, begin, bytes, pool, has_whole_rows ? Recheck::kWhole : Recheck::kNone);
  for (const TensorInfo* beside : {stored.scales, stored.zeros, stored.group_index, stored.shape})
    if (beside != nullptr) check_bytes(*beside, 0, beside->bytes, nullptr, Recheck::kNone);
}

std::vector<float> TensorReader::read_vector(const StoredRows& stored) const {
  check_checksums(stored);
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
    check_checksums(piece);
    visit_dtype(dtype_, [&]<class T>() {
      if (piece.is_plain() && stored_dtype(piece) == dtype_) {
        check_values(piece);
        for (int64_t r = 0; r < piece.rows; ++r)
          std::memcpy(matrix.view().row<T>(first + r), piece.row_data(r), static_cast<std::size_t>(piece.cols) * sizeof(T));
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
  if (stored.is_plain() && dtype && is_aligned(stored.row_data(0), dtype_bytes(*dtype))) {
    if (checks_mapped_) check_checksums(stored);
    check_values(stored);
    return view_of(stored, *dtype);
  }
  copy = read_matrix({stored});
  return copy.view();
}

std::unique_ptr<PackedMatrix> TensorReader::adopt(Matmul& matmul, const StoredMatrix& matrix, ThreadPool* pool,
                                                  MappedChecks checks) const {
  const TensorInfo& panels = *matrix.panels;
  checkpoint().fetch_pages(panels);
  if (!matmul.borrows_panels() || checks_mapped_ || checks == MappedChecks::kAlways) check_bytes(panels, 0, panels.bytes, pool);
  if (check_finite_) check_panels_finite(panels, matrix.panel_shape());
  std::unique_ptr<PackedMatrix> packed = matmul.adopt(matrix.n, matrix.k, *matrix.quantized, matrix.use,
                                                      {panels.data, static_cast<std::size_t>(panels.bytes)}, pool);
  if (!matmul.borrows_panels()) checkpoint().drop_pages(panels, 0, panels.bytes);
  return packed;
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
    check_checksums(piece);
    for (int64_t r = 0; r < piece.rows; ++r, ++at) {
      read_codes(piece, r,
                 {.codes = std::span(matrix.codes).subspan(at * cols, cols),
                  .scales = std::span(matrix.scales).subspan(at * groups, groups),
                  .zero_points = std::span(matrix.zero_points).subspan(at * zeros, zeros)});
    }
  }
  return matrix;
}

std::unique_ptr<PackedMatrix> TensorReader::pack(Matmul& matmul, const StoredMatrix& matrix, ThreadPool* pool,
                                                 MappedChecks checks) const {
  if (matrix.panels != nullptr) return adopt(matmul, matrix, pool, checks);
  const StoredRows& first = matrix.pieces.front();
  const bool is_in_place = matrix.pieces.size() == 1 && first.is_plain() && stored_dtype(first) == dtype_ &&
                           is_aligned(first.row_data(0), dtype_bytes(dtype_));
  std::unique_ptr<PackedMatrix> packed;
  if (is_in_place) {
    check_checksums(first, pool);
    check_values(first);
    const ConstMatrixView weights = view_of(first, dtype_);
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
    checkpoint().drop_pages(*piece.tensor, piece.first_row * row_bytes, piece.rows * row_bytes);
  }
}

}  // namespace ferry
