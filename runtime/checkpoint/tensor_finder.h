#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/stored_rows.h"

namespace ferry {

/// Finds tensors by name, checks shapes and types, in whichever format they are stored, and remembers which were used. Not
/// thread-safe.
///
/// Errors: Error{kInvalidArgument} naming tensor, file, what it has and what is expected.
class TensorFinder {
 public:
  explicit TensorFinder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// How matrices that are neither F32, BF16 nor F16 are to be read. Without it they are refused.
  void set_source_format(const SourceFormat& format) { format_ = format; }
  /// Whether there is such a tensor, in whichever form: the codes of "X.weight" may be "X.qweight".
  bool has(const std::string& name) const;
  /// The tensor, checked and marked as used, and what else its format needs.
  StoredRows find(const std::string& name, const std::vector<int64_t>& shape);
  bool is_used(std::string_view name) const { return used_.contains(std::string(name)); }

 protected:
  const Checkpoint& checkpoint() const { return checkpoint_; }
  void mark_as_used(const std::string& name) { used_.insert(name); }

 private:
  const TensorInfo& take(const std::string& name, const std::vector<int64_t>& shape, std::initializer_list<StoredType> types);
  StoredRows find_fp8(const TensorInfo& tensor, const std::string& name, StoredRows rows);
  StoredRows find_integers(const std::string& base, int64_t n, int64_t k);

  const Checkpoint& checkpoint_;
  SourceFormat format_;
  std::set<std::string> used_;
};

}  // namespace ferry
