#include "runtime/version.h"

// The real one names the kernels and transports that are linked in; none is here.

namespace ferry {

const char* version_number() { return "0"; }

std::string version_text() { return "ferry 0, fuzzed"; }

}  // namespace ferry
