#include "runtime/base/error.h"

#include <algorithm>

#include "runtime/base/quoting.h"

namespace ferry {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCancelled: return "CANCELLED";
    case ErrorCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case ErrorCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case ErrorCode::kNotFound: return "NOT_FOUND";
    case ErrorCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case ErrorCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case ErrorCode::kAborted: return "ABORTED";
    case ErrorCode::kUnimplemented: return "UNIMPLEMENTED";
    case ErrorCode::kInternal: return "INTERNAL";
    case ErrorCode::kUnavailable: return "UNAVAILABLE";
  }
  return "UNKNOWN";
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kBytesMax = 1000;
  std::string line = printable(text.substr(0, kBytesMax));
  if (text.size() <= kBytesMax && line.size() <= kBytesMax) return line;
  line.resize(std::min(line.size(), kBytesMax));
  while (line.size() > 1 && (static_cast<unsigned char>(line.back()) & 0xC0U) == 0x80U) line.pop_back();
  line.pop_back();  // with the bytes above a whole UTF-8 character, cut or not
  return line + "...";
}

void throw_invalid(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

}  // namespace ferry
