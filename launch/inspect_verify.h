#pragma once

#include "runtime/options/options.h"

namespace ferry {

/// Runs `ferry inspect --verify`: reads a whole checkpoint folder and prints what is right and what is damaged. Returns the
/// exit code, 2 if something is damaged. Throws as check_folder() does.
int run_verify(const Options& options);

}  // namespace ferry
