#include "runtime/model/cache_shapes.h"

#include <string>

#include "runtime/base/error.h"

namespace ferry {

DType kv_cache_dtype(std::optional<DType> asked, DType dtype) {
  if (!asked || *asked == dtype || *asked == DType::kI8) return asked.value_or(dtype);
  throw_invalid("--kv-cache-dtype is " + std::string(kv_dtype_name(*asked)) + "; allowed: auto or int8 with --dtype " +
                dtype_name(dtype));
}

KvCacheOptions kv_cache_shape(const ModelConfig& config, DType dtype, int64_t block_tokens) {
  return {.num_layers = static_cast<int>(config.num_layers_of(Mixer::kAttention)) + (config.mtp ? 1 : 0),
          .block_tokens = block_tokens,
          .num_kv_heads = config.attention.num_kv_heads,
          .head_dim = config.attention.head_dim,
          .dtype = dtype};
}

RecurrentStateOptions recurrent_state_shape(const ModelConfig& config, DType dtype) {
  const auto num_conv = static_cast<int>(config.num_layers_of(Mixer::kShortConv));
  if (num_conv > 0) {
    return {.num_layers = num_conv,
            .conv_channels = config.short_conv.channels,
            .conv_kernel = config.short_conv.conv_kernel,
            .dtype = dtype};
  }
  const GatedDeltaPlan& d = config.gated_delta;
  return {.num_layers = static_cast<int>(config.num_layers_of(Mixer::kGatedDelta)),
          .conv_channels = d.conv_channels(),
          .conv_kernel = d.conv_kernel,
          .num_v_heads = d.num_v_heads,
          .k_dim = d.k_dim,
          .v_dim = d.v_dim,
          .dtype = dtype};
}

}  // namespace ferry
