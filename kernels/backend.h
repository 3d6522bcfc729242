#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/op_table.h"
#include "runtime/base/check.h"

namespace ferry {

/// What computes on one device: for every op its implementations in order of preference, and the way to multiply. Chosen once
/// at start; ops may be run by any thread.
class Backend {
 public:
  /// The first of `tables` that takes an op's arguments runs it; the last takes everything. `kernels_name` is what they are
  /// called together. `matmul` may be null where nothing is multiplied. All of them work on what lies in `memory`.
  Backend(const char* kernels_name, std::vector<const OpTable*> tables, std::unique_ptr<Matmul> matmul,
          Memory& memory = host_memory())
      : kernels_name_(kernels_name), tables_(std::move(tables)), matmul_(std::move(matmul)), memory_(memory) {}

  const char* kernels_name() const { return kernels_name_; }
  Matmul& matmul() const { return *matmul_; }
  /// Where weights, states and intermediate results lie.
  Memory& memory() const { return memory_; }

  /// Whether a table takes these arguments. Ops that are made of others (as ops.h says) may be in none.
  template <class Args>
  bool has(Op<Args> OpTable::*op, const Args& args) const {
    return std::ranges::any_of(tables_, [&](const OpTable* table) { return (table->*op).takes(args); });
  }

  template <class Args>
  void run(Op<Args> OpTable::*op, Stream& stream, const Args& args) const {
    for (const OpTable* table : tables_) {
      const Op<Args>& candidate = table->*op;
      if (candidate.takes(args)) return candidate(stream, args);
    }
    FERRY_CHECK(false) << "no table has the op";
  }

 private:
  const char* kernels_name_;
  std::vector<const OpTable*> tables_;
  std::unique_ptr<Matmul> matmul_;
  Memory& memory_;
};

/// The CPU: the table `kernels` (as of select_op_table()), behind it "ref", and in front of the best one the units of this
/// processor; and the products `matmul` (as of select_matmul()) for a run in `dtype`. Throws Error{kInvalidArgument} that lists
/// what runs here.
Backend select_backend(std::string_view kernels, const std::string& matmul, DType dtype);

}  // namespace ferry
