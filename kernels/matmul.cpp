#include "kernels/matmul.h"

#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace ferry {

void MatmulBackend::matmul(ThreadPool& pool, ConstMatrixView x, const PackedMatrix& weights, MatrixView out) {
  const int32_t count = static_cast<int32_t>(x.rows);
  const PackedMatrix* group = &weights;
  grouped_matmul(pool, {.x = x, .counts = {&count, 1}, .weights = {&group, 1}, .out = out});
}

std::unique_ptr<MatmulBackend> select_matmul(const char* name, const char* isa, DType dtype) {
  const std::string_view wanted = name;
  const bool has_vectors = std::string_view(isa) != "ref";
  if (wanted == "ref" || (wanted == "auto" && !has_vectors)) return make_ref_matmul();
  if (wanted == "auto" || wanted == "onednn") {
    if (auto backend = make_onednn_matmul(dtype)) return backend;
    if (wanted == "onednn") {
      throw_invalid(std::string("--matmul: oneDNN has no ") + dtype_name(dtype) +
                    " matrix product for this processor; allowed: cpu, ref");
    }
  }
  if (!has_vectors) throw_invalid("--matmul: 'cpu' needs --kernels avx2 or avx512");
  return make_cpu_matmul(isa);
}

}  // namespace ferry
