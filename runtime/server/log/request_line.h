#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/server/log/request_note.h"

namespace ferry {

/// A request that has ended.
struct EndedRequest {
  std::chrono::system_clock::time_point time;  // of its end
  std::string port;                            // "http" or "grpc"
  std::string method;                          // of HTTP
  std::string route;                           // where HTTP's route was added, or gRPC's method with its service
  int status = 0;                              // HTTP's, or gRPC's code
  std::string key;                             // the name of the key that it came with; empty: none
  RequestFigures figures;
  double total_s = 0;  // from its arrival to its answer's end
};

/// No line has more bytes, its end included: that many are written to a pipe at once or not at all (PIPE_BUF).
inline constexpr std::size_t kMaxLineBytes = 4096;

/// A line of JSON with a line break. Every object has every field; what is not known or does not apply is null.
std::string json_line(const EndedRequest& request);
/// The same fields as name=value (logfmt), without those that are null.
std::string text_line(const EndedRequest& request);

/// The lines that stand for `num_lines` others that were dropped before `time`.
std::string json_gap(std::chrono::system_clock::time_point time, int64_t num_lines);
std::string text_gap(std::chrono::system_clock::time_point time, int64_t num_lines);

}  // namespace ferry
