#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// Whose work a request is part of, as W3C's Trace Context has it (traceparent and tracestate, level 1).
struct TraceContext {
  std::string trace_id;    // 32 hexadecimal digits, lower case
  std::string parent_id;   // 16 of them: the caller's span
  std::string state;       // tracestate, as sent; empty: none
  bool is_sampled = true;  // whether the caller records its part
};

/// Both as sent, empty where absent. Nothing for a traceparent that is none, which is then as if it were absent; a tracestate
/// that cannot be one is left out.
std::optional<TraceContext> parse_trace_context(std::string_view traceparent, std::string_view tracestate);

}  // namespace ferry
