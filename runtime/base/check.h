#pragma once

#include <cstdint>
#include <sstream>

// Broken invariants: our own bugs (shape, range, protocol), never a user's input. FERRY_CHECK prints the expression, both
// values and where in the run it happened (rank, step, layer), then aborts. It stays on in release builds.

namespace ferry {

/// Where this thread is in the run; printed by a failed check. -1 means "not in one".
struct CheckContext {
  int rank = -1;
  int64_t step = -1;
  int layer = -1;
  int micro_batch = 0;  // of those that go through the layer in this step
};

namespace detail {

extern thread_local constinit CheckContext check_context;

/// Collects the message of a failed check and aborts when it goes out of scope.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* expression);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace detail

/// The calling thread's context. The owner of a step sets it; anyone may read it.
inline CheckContext& check_context() { return detail::check_context; }

}  // namespace ferry

#define FERRY_CHECK(condition) \
  if (condition) [[likely]] {  \
  } else                       \
    ::ferry::detail::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define FERRY_CHECK_OP(a, op, b) FERRY_CHECK((a)op(b)) << " (" << (a) << " vs " << (b) << ") "
#define FERRY_CHECK_EQ(a, b) FERRY_CHECK_OP(a, ==, b)
#define FERRY_CHECK_LT(a, b) FERRY_CHECK_OP(a, <, b)
#define FERRY_CHECK_LE(a, b) FERRY_CHECK_OP(a, <=, b)
#define FERRY_CHECK_GE(a, b) FERRY_CHECK_OP(a, >=, b)
