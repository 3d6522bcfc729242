#include "kernels/cpu/bf16_ops.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/op_table.h"

// The ops of a unit that multiplies bf16; its name is that of the compile command.
#define FERRY_NAME_OF(isa) #isa
#define FERRY_NAME(isa) FERRY_NAME_OF(isa)

namespace ferry::FERRY_ISA_NAMESPACE {

const OpTable kOpTable = {.name = FERRY_NAME(FERRY_ISA),
                          .attention = {on_pool<attention>, takes_attention},
                          .gated_delta_rule = {on_pool<gated_delta_rule>, takes_delta_rule},
                          .segment_attention = {on_pool<segment_attention>, takes_segments}};

}  // namespace ferry::FERRY_ISA_NAMESPACE
