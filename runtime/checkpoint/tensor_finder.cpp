#include "runtime/checkpoint/tensor_finder.h"

#include <algorithm>
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

std::string shape_string(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

/// What a checkpoint says of a matrix whose packed codes no longer tell.
void check_stored_shape(const TensorInfo& tensor, const std::vector<int64_t>& expected) {
  std::vector<int64_t> stored(2);
  std::memcpy(stored.data(), tensor.data, stored.size() * sizeof(int64_t));
  if (stored == expected) return;
  throw_invalid(std::string(tensor.file) + ": tensor " + tensor.name + " says " + shape_string(stored) +
                "; config.json asks for " + shape_string(expected));
}

}  // namespace

bool TensorFinder::has(const std::string& name) const {
  if (checkpoint_.find(name) != nullptr) return true;
  return format_.layout != nullptr && name.ends_with(kWeight) &&
         checkpoint_.find(without_weight(name) + std::string(format_.layout->codes)) != nullptr;
}

/// The tensor, marked as used.
const TensorInfo& TensorFinder::take(const std::string& name, const std::vector<int64_t>& shape,
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

StoredRows TensorFinder::find(const std::string& name, const std::vector<int64_t>& shape) {
  const bool is_integers = checkpoint_.find(name) == nullptr && has(name);
  if (is_integers && shape.size() == 2) return find_integers(without_weight(name), shape[0], shape[1]);
  const bool may_be_fp8 = format_.kind == SourceFormat::Kind::kFp8Block && shape.size() >= 2;
  const TensorInfo& tensor = take(name, shape, may_be_fp8 ? kNumbersOrFp8 : kNumbers);
  StoredRows rows{.tensor = &tensor, .rows = 1, .cols = shape.back()};
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows.rows *= shape[i];
  rows.matrix_rows = shape.size() >= 2 ? shape[shape.size() - 2] : 1;
  rows.matrix_cols = rows.cols;
  return tensor.dtype == StoredType::kF8E4M3 ? find_fp8(tensor, name, rows) : rows;
}

/// With its scales: "X.weight_scale_inv", a factor in spite of its name, or "X.weight_scale".
StoredRows TensorFinder::find_fp8(const TensorInfo& tensor, const std::string& name, StoredRows rows) {
  rows.format = format_;
  const int64_t block_cols = format_.block_cols == 0 ? rows.cols : format_.block_cols;
  std::vector<int64_t> shape = tensor.shape;
  shape[shape.size() - 2] = ceil_divide(rows.matrix_rows, format_.block_rows);
  shape.back() = ceil_divide(rows.cols, block_cols);
  rows.scales = &take(name + std::string(format_.scale_suffix), shape, kNumbers);
  return rows;
}

/// With its scales, zero points and what else the layout has.
StoredRows TensorFinder::find_integers(const std::string& base, int64_t n, int64_t k) {
  const IntegerLayout& layout = *format_.layout;
  const auto named = [&](std::string_view suffix) { return base + std::string(suffix); };
  const auto shape_of = [&](int64_t rows, int64_t cols) {
    return layout.is_transposed ? std::vector<int64_t>{cols, rows} : std::vector<int64_t>{rows, cols};
  };
  StoredRows rows{.rows = n, .cols = k, .format = format_, .matrix_rows = n, .matrix_cols = k};
  const auto codes_shape = [&](int64_t bits) {
    const int64_t per_word = 32 / bits;
    return layout.is_word_of_rows ? shape_of(ceil_divide(n, per_word), k) : shape_of(n, ceil_divide(k, per_word));
  };
  rows.format.bits = layout.has_8_bits && checkpoint_.find(named(layout.codes))->shape == codes_shape(8) ? 8 : 4;
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

}  // namespace ferry
