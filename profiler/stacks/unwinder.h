#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/stacks/stack_ring.h"
#include "profiler/stacks/stack_samples.h"

namespace ferry {

/// Callers and names of this process's functions, from the files that it is made of: whoever is in a file when an Unwinder is
/// made is found. Nothing is asked of other machines, and no debug information is needed. One thread at a time.
class Unwinder {
 public:
  Unwinder();
  ~Unwinder();
  Unwinder(const Unwinder&) = delete;
  Unwinder& operator=(const Unwinder&) = delete;

  /// Why it can do nothing; empty: it can.
  const std::string& absent() const { return absent_; }

  /// Where the thread was in each of its functions, the innermost first: of callers the call itself, not the return address.
  /// As far as the copied stack and the files' tables go.
  std::vector<uintptr_t> find_calls(const RawStack& stack);

  /// The function that holds the instruction at `address`; what has no name is called by its file and the place in it.
  StackFrame find_function(uintptr_t address);

 private:
  struct Modules;

  std::unique_ptr<Modules> modules_;
  std::string absent_;
};

}  // namespace ferry
