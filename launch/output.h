#pragma once

namespace ferry {

/// Call when everything was printed to standard output: throws Error if any of it could not be written, now or earlier.
void finish_output();

}  // namespace ferry
