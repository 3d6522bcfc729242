#pragma once

#include <memory>
#include <vector>

#include "comm/group.h"

namespace ferry {

/// `size` ranks that live in one process, for tests: element r is rank r's handle and belongs to the thread that plays rank r.
/// Sends copy and never wait. A rank that aborts or is destroyed has left: what it sent still arrives, and waiting for more
/// from it is Error{kUnavailable}.
std::vector<std::unique_ptr<Group>> make_local_groups(int size);

}  // namespace ferry
