#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dot_bf16_ops.h"
#include "kernels/op_table.h"

namespace ferry::FERRY_ISA_NAMESPACE {

const OpTable kOpTable = {.name = "avx512_bf16",
                          .attention = {on_pool<attention>, takes_attention},
                          .gated_delta_rule = {on_pool<gated_delta_rule>, takes_delta_rule},
                          .segment_attention = {on_pool<segment_attention>, takes_segments}};

}  // namespace ferry::FERRY_ISA_NAMESPACE
