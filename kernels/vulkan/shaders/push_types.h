#pragma once

// What push constants are made of, in C++ and in GLSL, whose scalar layout is that of C++. A block has at most 128 bytes, and
// no member that GLSL has a word for (`out`, `in`).

#ifdef __cplusplus
#include <cstdint>
#define PUSH_BEGIN namespace ferry::vulkan {
#define PUSH_END }
namespace ferry::vulkan {
using uint = uint32_t;
}
#else
#define PUSH_BEGIN
#define PUSH_END
#endif
