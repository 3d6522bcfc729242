#include "kernels/matmul.h"

#include <algorithm>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/unpack_panels.h"
#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {

void Matmul::matmul(Stream& stream, const MatmulRows& rows, const PackedMatrix& weights, MatrixView out,
                    const ProductFinish& finish) {
  const auto count = static_cast<int32_t>(rows.x.rows);
  const PackedMatrix* group = &weights;
  grouped_matmul(stream, {.rows = rows, .counts = {&count, 1}, .weights = {&group, 1}, .out = out, .finish = finish});
}

void Matmul::matmuls(Stream& stream, std::span<const NamedProduct> products) {
  const SpanChain chain;
  for (const NamedProduct& product : products) {
    const Span span(product.zone, product.out.rows);
    matmul(stream, product.rows, *product.weights, product.out);
  }
}

void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) { stream.backend().matmul().grouped_matmul(stream, args); }

void matmul(Stream& stream, const MatmulRows& rows, const PackedMatrix& weights, MatrixView out, const ProductFinish& finish) {
  stream.backend().matmul().matmul(stream, rows, weights, out, finish);
}

void matmuls(Stream& stream, std::span<const NamedProduct> products) { stream.backend().matmul().matmuls(stream, products); }

void check_finish(const GroupedMatmulArgs& args, const PackedMatrix& weights) {
  const ProductFinish& finish = args.finish;
  if (finish.bias.raw() == nullptr) {
    FERRY_CHECK(finish.residual.data == nullptr && finish.activation == BiasActivation::kNone) << " without a bias";
    return;
  }
  FERRY_CHECK(!weights.is_gated());
  if (finish.residual.data == nullptr) return;
  FERRY_CHECK(finish.activation == BiasActivation::kNone && finish.residual.dtype == args.out.dtype);
  FERRY_CHECK_EQ(finish.residual.rows, args.out.rows);
  FERRY_CHECK_EQ(finish.residual.cols, args.out.cols);
}

void check_operands(const GroupedMatmulArgs& args, const PackedMatrix& weights) {
  const ConstMatrixView& x = args.rows.x;
  FERRY_CHECK_EQ(weights.out_cols(), args.out.cols);
  check_finish(args, weights);
  if (weights.type().is_integer()) {
    FERRY_CHECK(x.dtype == DType::kI8 && args.rows.scales.raw() != nullptr) << " quantised weights multiply quantised rows";
    FERRY_CHECK_EQ(quantized_cols(weights.k()), x.cols);
  } else {
    FERRY_CHECK(weights.type().format == WeightFormat::kE4M3 || plain_weights(x.dtype) == weights.type());
    FERRY_CHECK(x.dtype != DType::kI8 && x.dtype == args.out.dtype);
    FERRY_CHECK_EQ(weights.k(), x.cols);
  }
}

std::unique_ptr<PackedMatrix> Matmul::adopt(int64_t n, int64_t k, WeightType type, WeightUse use,
                                            std::span<const std::byte> panels, ThreadPool* pool) {
  return pack(unpack_panels(n, k, type, use, panels, pool), use, pool);
}

std::unique_ptr<Matmul> select_matmul(const std::string& name, DType dtype, std::string_view ops_name) {
  const std::vector<std::string> own = cpu_matmul_names();
  if (name == "ref" || (name == "auto" && (own.empty() || ops_name == "ref"))) return make_ref_matmul();
  if (name == "auto") return make_cpu_matmul("");
  if (std::find(own.begin(), own.end(), name) != own.end()) return make_cpu_matmul(name);
  std::string allowed = "auto, ";
  for (const std::string& kernels : own) allowed += kernels + ", ";
  if (name == "onednn") {
    if (auto backend = make_onednn_matmul(dtype)) return backend;
    throw_invalid(std::string("--matmul: oneDNN has no ") + dtype_name(dtype) +
                  " matrix product for this processor; allowed: " + allowed + "ref");
  }
  throw_invalid("--matmul: '" + name + "' cannot run on this processor; allowed: " + allowed + "onednn, ref");
}

}  // namespace ferry
