#pragma once

#include "kernels/op_table.h"

namespace ferry::test {

/// The ops of the first Vulkan device of this machine for arguments of the host, which are taken to the device and back around
/// each op, with what the op does not order by ranges run in reverse. Null where there is no device, or no Vulkan was built in.
/// The streams that its ops are called with are not used.
const OpTable* vulkan_table();

}  // namespace ferry::test
