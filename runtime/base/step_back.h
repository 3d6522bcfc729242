#pragma once

namespace ferry {

/// From now on the calling thread gets about a tenth of a core that others want, too (nice 10); where the system does not allow
/// that, it goes on as before.
void step_back();

}  // namespace ferry
