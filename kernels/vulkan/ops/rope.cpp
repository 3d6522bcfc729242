#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_rope.h"

namespace ferry::vulkan {
namespace {

struct Rotation {
  MatrixView x;  // [rows, num_heads * head_dim]
  int64_t head_dim;
  int64_t half;                   // elements of a head that are rotated, halved
  Address<const float> cos, sin;  // [rows, half]
  bool rounds_products;
};

void rotate(VulkanStream& stream, const Rotation& rotation) {
  const MatrixView& x = rotation.x;
  FERRY_CHECK_EQ(x.cols % rotation.head_dim, 0);
  const int64_t num_heads = x.cols / rotation.head_dim, num_pairs = x.rows * num_heads * rotation.half;
  if (num_pairs == 0) return;
  stream.reads(x);
  stream.reads(rotation.cos, x.rows * rotation.half);
  stream.reads(rotation.sin, x.rows * rotation.half);
  stream.writes(x);
  const RopePush push{.x = address_of(x),
                      .cos = address_of(rotation.cos),
                      .sin = address_of(rotation.sin),
                      .x_stride = stride_of(x),
                      .rows = static_cast<uint32_t>(x.rows),
                      .num_heads = static_cast<uint32_t>(num_heads),
                      .head_dim = static_cast<uint32_t>(rotation.head_dim),
                      .half_dim = static_cast<uint32_t>(rotation.half)};
  stream.dispatch({find_shader("rope", x.dtype), {kElementInvocations, rotation.rounds_products ? 1U : 0U}}, push,
                  grid_of_invocations(num_pairs));
}

}  // namespace

void rope(VulkanStream& stream, const RopeArgs& args) {
  FERRY_CHECK_EQ(args.rotary_dim % 2, 0);
  FERRY_CHECK_LE(args.rotary_dim, args.head_dim);
  rotate(stream, {args.x, args.head_dim, args.rotary_dim / 2, args.cos, args.sin, true});
}

void vision_rope(VulkanStream& stream, const VisionRopeArgs& args) {
  FERRY_CHECK_EQ(args.head_dim % 2, 0);
  rotate(stream, {args.x, args.head_dim, args.head_dim / 2, args.cos, args.sin, false});
}

}  // namespace ferry::vulkan
