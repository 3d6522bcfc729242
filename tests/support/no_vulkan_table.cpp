#include "tests/support/vulkan_table.h"

namespace ferry::test {

const OpTable* vulkan_table() { return nullptr; }

}  // namespace ferry::test
