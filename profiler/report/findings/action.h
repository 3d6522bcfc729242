#pragma once

#include <string>

namespace ferry {

/// What to do about a finding, and what that is predicted to bring. The prediction is of one figure of the same work, on the
/// same machine, with nothing else changed.
struct Action {
  std::string kind;        // "prefill_chunk", "token_budget", "redundancy", "ranks", …: stable, for scripts
  std::string text;        // what to do, one sentence
  std::string option;      // of the command line: "--prefill-chunk", "-np"
  std::string from, to;    // its values
  std::string command;     // a whole command line to try it with; empty where the capture does not know its own
  std::string metric;      // the figure: "decode ×4 tokens/s", "decode ms a step", "TTFT p50 ms"
  double before = 0;       // as it was captured
  double after = 0;        // as it is predicted
  double saved_ms = 0;     // by which the capture's steps would be shorter
  double saved_share = 0;  // of the time that the figure is about
  double error_share = 0;  // of that time: by which saved_share may be off
  std::string assumes;     // what the prediction takes for granted; may be empty

  /// Change of the figure, as a share of what it was; positive where more of it is better.
  double change() const { return before != 0 ? after / before - 1 : 0; }
};

}  // namespace ferry
