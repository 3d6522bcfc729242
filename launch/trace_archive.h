#pragma once

#include "runtime/options/trace_options.h"

namespace ferry {

/// `ferry trace archive`: prints what a server kept of its steps and, if asked to, writes a capture of them. Throws Error.
void show_archive(const TraceOptions& options);

}  // namespace ferry
