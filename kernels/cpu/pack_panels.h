#pragma once

#include <cstddef>

#include "kernels/cpu/panel_layout.h"
#include "kernels/quantize.h"
#include "kernels/tensor.h"

// Weights into panels (panel_layout.h). `to` holds num_panels * panel_bytes zeroed bytes. The threads of `pool` share the
// panels if there is one.

namespace ferry {

void pack_panels(ConstMatrixView weights, const PanelColumns& columns, std::byte* to, ThreadPool* pool = nullptr);
void pack_panels(const QuantizedMatrix& weights, const PanelColumns& columns, std::byte* to, ThreadPool* pool = nullptr);

}  // namespace ferry
