#pragma once

#include <sys/types.h>

// How a test waits until another thread waits: it looks at what the kernel tells of threads. So a test needs no pause in which
// others should get somewhere. Any thread may call these.

namespace ferry::test {

/// Returns once `thread` (gettid()) of this process sleeps.
void await_asleep(pid_t thread);

/// Whether no thread of `process`, but for `except` (gettid(), 0: none), ran at some moment of this call: all of them slept.
bool is_quiet(pid_t process, pid_t except = 0);

/// Returns once all other threads of this process sleep: all has happened that can happen before the caller does something.
void await_quiet();

}  // namespace ferry::test
