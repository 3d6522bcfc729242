#pragma once

#include "runtime/options/options.h"

namespace ferry {

/// Runs `ferry inspect --verify`: reads a whole checkpoint folder and prints what is right, damaged or missing. Returns the
/// exit code, 2 if something is damaged or missing. Throws as check_folder() and load_config() do, with --json after it printed
/// why.
int run_verify(const Options& options);

}  // namespace ferry
