#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

// Operating failures: a missing file, a bad config, an unreachable peer. One type, thrown while loading, connecting,
// validating a request or at a deadline, and caught at the edges only: main, the gRPC handler, the worker loop.

namespace ferry {

/// Maps one to one onto gRPC's status codes.
enum class ErrorCode {
  kCancelled,
  kInvalidArgument,
  kDeadlineExceeded,
  kNotFound,
  kResourceExhausted,
  kFailedPrecondition,
  kAborted,
  kUnimplemented,
  kInternal,
  kUnavailable,
};

/// The upper-case name that gRPC gives the code, for example "INVALID_ARGUMENT".
const char* error_code_name(ErrorCode code);

/// `text` made printable, line breaks, too, and cut to what a terminal and a gRPC status can carry (about 1000 bytes).
std::string one_line(std::string_view text);

class Error : public std::runtime_error {
 public:
  /// `message` is one line that names the thing, the value and what is allowed. What a stranger put into it is made one_line.
  Error(ErrorCode code, const std::string& message) : std::runtime_error(one_line(message)), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Shorthand for the most frequent kind: the caller's input is wrong.
[[noreturn]] void throw_invalid(const std::string& message);

}  // namespace ferry
