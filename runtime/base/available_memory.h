#pragma once

#include <cstdint>
#include <string>

namespace ferry {

/// Bytes that this process can still be given before the system runs out of memory: what the kernel counts as available, or
/// what the limit of the process's control group (version 2) leaves, whichever is less. The largest int64_t where neither is
/// known.
///
/// Linux hands out more memory than it has and kills a process that then uses it; asking first makes that an error with a name.
int64_t available_memory_bytes();

/// "12 MiB", for messages, and from 10 GiB and 10 TiB on in these. Rounded down, for what there is, and up, for what is needed.
std::string size_text(int64_t bytes);
std::string size_that_holds(int64_t bytes);

/// Throws Error{kResourceExhausted} with `what`, the bytes wanted and those available if `bytes` are not available now. What
/// this process has of lazy pages and has not touched yet (lazy_pages.h) is not: it is promised already.
void require_memory(int64_t bytes, const std::string& what);

}  // namespace ferry
