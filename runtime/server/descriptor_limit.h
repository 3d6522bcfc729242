#pragma once

#include <cstdint>

namespace ferry {

/// Raises this process's soft limit of open descriptors towards the hard one, as far as the ports can use it. Call it once,
/// before the servers are made.
void raise_descriptor_limit();

/// How many connections one of the two ports may hold, each of which takes `num_descriptors`: `wanted`, or less where
/// descriptors are few, since half of what remains beside files, ranks and libraries belongs to each port. At least 1.
int64_t affordable_connections(int64_t wanted, int64_t num_descriptors = 1);

}  // namespace ferry
