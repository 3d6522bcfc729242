#include "tests/support/vulkan_table.h"

namespace ferry::test {

const OpTable* vulkan_table() { return nullptr; }
bool vulkan_multiplies_bf16() { return false; }

}  // namespace ferry::test
