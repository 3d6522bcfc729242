#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/argmax_screen.h"
#include "kernels/cpu/matmul_block.h"

namespace ferry {

/// bf16 weights [n, k] in panels, which outlive what is made of them.
struct PanelWeights {
  const std::byte* panels;
  int64_t n;
  int64_t k;

  int64_t num_panels() const { return (n + kPanelCols - 1) / kPanelCols; }
};

/// Works with the kernels that multiply the weights elsewhere.
std::unique_ptr<ArgmaxScreen> make_panel_argmax_screen(const MatmulKernels& kernels, const PanelWeights& weights,
                                                       int64_t max_rows, ThreadPool& pool);

}  // namespace ferry
