#pragma once

#include <string>
#include <vector>

namespace ferry {

/// What MindStudio Insight's parser would trip over, misread or silently ignore in a trace_view.json: one sentence per fault.
/// The rules are its parser's: a bare array or `traceEvents` near the front; one event per line; no braces in strings; only the
/// phases M X I C s t f; times in microseconds with exactly three decimals, never 0; ids in range, with the sort index and the
/// device in a process id; slices of a lane nested or disjoint; named processes and lanes; flows with both ends.
std::vector<std::string> lint_insight_trace(const std::string& text);

}  // namespace ferry
