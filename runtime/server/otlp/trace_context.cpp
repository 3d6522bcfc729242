#include "runtime/server/otlp/trace_context.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr std::size_t kMaxStateBytes = 512;  // which everybody must pass on

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view digits) { return digits.find_first_not_of('0') == std::string_view::npos; }

bool is_state(std::string_view state) {
  return state.size() <= kMaxStateBytes &&
         std::all_of(state.begin(), state.end(), [](char c) { return (c >= ' ' && c <= '~') || c == '\t'; });
}

}  // namespace

/// "00-<trace id>-<parent id>-<flags>"; later versions may have more behind a further '-'.
std::optional<TraceContext> parse_trace_context(std::string_view traceparent, std::string_view tracestate) {
  constexpr std::size_t kLength = 55;
  if (traceparent.size() < kLength || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') return {};
  const std::string_view version = traceparent.substr(0, 2), trace_id = traceparent.substr(3, 32),
                         parent_id = traceparent.substr(36, 16), flags = traceparent.substr(53, 2);
  const bool is_longer = traceparent.size() > kLength;
  if (!is_hex(version) || version == "ff" || (is_longer && (version == "00" || traceparent[kLength] != '-'))) return {};
  if (!is_hex(trace_id) || is_zero(trace_id) || !is_hex(parent_id) || is_zero(parent_id) || !is_hex(flags)) return {};
  const std::string_view odd_digits = "13579bdf";
  return TraceContext{.trace_id = std::string(trace_id),
                      .parent_id = std::string(parent_id),
                      .state = is_state(tracestate) ? std::string(tracestate) : "",
                      .is_sampled = odd_digits.find(flags[1]) != std::string_view::npos};
}

}  // namespace ferry
