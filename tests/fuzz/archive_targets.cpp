#include <string>

#include "profiler/archive/segment.h"
#include "profiler/archive/step_history.h"
#include "runtime/base/check.h"
#include "tests/fuzz/targets.h"

// What lies in the archive of a server's steps.

namespace ferry::fuzz {

/// A day of step lengths. What was read is the same after it was written.
void read_step_day(Input input) {
  StepHistory history;
  history.add_day(text_of(input), "input");
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
    const StepSketch sketch = history.phase(phase, 0, INT64_MAX / 2);
    FERRY_CHECK_LE(sketch.quantile(0.5), sketch.quantile(0.99));
  }
}

/// A segment of a run with one rank and four experts.
void read_kept_step(Input input) {
  const CaptureInfo run{.world_size = 1, .expert_rank = {0, 0, 0, 0}};
  const SegmentEntry entry = read_segment_entry(text_of(input), "input");
  const Capture capture = decode_segment(text_of(input), run, "input");
  const std::string bytes = encode_segment(entry, capture);
  FERRY_CHECK(encode_segment(read_segment_entry(bytes, "encoded"), decode_segment(bytes, run, "encoded")) == bytes);
}

/// A line of the index.
void read_archive_line(Input input) {
  const std::string line = entry_text(parse_entry(text_of(input), "input"));
  FERRY_CHECK(entry_text(parse_entry(line, "written")) == line);
}

}  // namespace ferry::fuzz
