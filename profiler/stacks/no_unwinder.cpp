#include "profiler/stacks/unwinder.h"

namespace ferry {

struct Unwinder::Modules {};

Unwinder::Unwinder() : absent_("built without libdw") {}

Unwinder::~Unwinder() = default;

std::vector<uintptr_t> Unwinder::find_calls(const RawStack& stack) { return {stack.pc}; }

StackFrame Unwinder::find_function(uintptr_t) { return {}; }

}  // namespace ferry
