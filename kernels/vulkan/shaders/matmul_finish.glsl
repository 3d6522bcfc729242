// The last part of every product: sums become elements of the result, as matmul.h says.

#include "kernels/vulkan/shaders/exponential.glsl"
#include "kernels/vulkan/shaders/gelu.glsl"

uint64_t result_row(uint row) { return p.result + uint64_t(row) * p.result_stride * kBytesOfT; }

float activated(float y) {
  if (p.activation == 1) return gelu_tanh(y);
  if (p.activation == 2) return gelu(y);
  return y;
}

// Of plain weights: row `row` of the call, column `col`.
void store_product(uint row, uint col, float sum) {
  if (p.bias == 0) {
    store_t(result_row(row), col, sum);
    return;
  }
  float y = round_t(sum + F32(p.bias).v[col]);
  if (p.residual == 0) {
    store_t(result_row(row), col, activated(y));
  } else {
    store_t(result_row(row), col, load_t(p.residual + uint64_t(row) * p.residual_stride * kBytesOfT, col) + y);
  }
}

float gated_value(float gate, float up) { return round_t(accurate_silu(round_t(gate))) * round_t(up); }
void store_gated(uint row, uint col, float gate, float up) { store_t(result_row(row), col, gated_value(gate, up)); }
