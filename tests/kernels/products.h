#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/op_table.h"
#include "tests/kernels/matrices.h"
#include "tests/support/quantized_rows.h"

// Matrix products of every implementation that this processor can run.

namespace ferry {

/// Rows and their codes.
struct CodedRows {
  CodedRows(const Matrix& x) : codes(x.rows(), x.cols()) {  // NOLINT: implicit
    test::TestStream stream(1);
    available_op_tables().front()->quantize_rows(stream,
                                                 {.x = x.view(), .codes = codes.values.view(), .scales = codes.scales.data()});
  }
  MatmulRows view() const { return {codes.values.view(), codes.scales.data()}; }
  QuantizedRows codes;
};

/// The own kernels, best first.
inline std::vector<std::unique_ptr<Matmul>> all_backends() {
  std::vector<std::unique_ptr<Matmul>> backends;
  for (const std::string& name : cpu_matmul_names()) backends.push_back(make_cpu_matmul(name));
  return backends;
}

inline Matrix multiply(Matmul& backend, const MatmulRows& rows, const PackedMatrix& weights, DType dtype, int num_threads = 1) {
  test::TestStream stream(num_threads);
  Matrix out(dtype, rows.x.rows, weights.out_cols());
  backend.matmul(stream, rows, weights, out.view());
  return out;
}

}  // namespace ferry
