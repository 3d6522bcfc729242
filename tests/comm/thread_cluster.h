#pragma once

#include <functional>
#include <memory>

#include "comm/group.h"
#include "tests/comm/group_cluster.h"

namespace ferry {

/// Makes a rank's group out of its local group, which lives until all ranks are done.
using WrapGroup = std::function<std::unique_ptr<Group>(Group& local)>;

/// Plays `body` on `size` ranks that are threads of this process. An exception that leaves a body is a test failure.
void run_on_threads(int size, const GroupCluster::Body& body);

/// A cluster whose ranks are threads; `wrap` may be empty for the local groups themselves.
GroupCluster thread_cluster(const std::string& name, int size, WrapGroup wrap);

}  // namespace ferry
