#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Profiles as pprof reads them (`go tool pprof`, its web page, Pyroscope, Parca, speedscope): what was measured for which stack
// of frames.

namespace ferry {

/// What is counted, and in what: "wall", "nanoseconds"; "operators", "count".
struct ProfileValue {
  std::string type, unit;
};

/// One place on a stack. Frames with the same name in different files are different to pprof.
struct ProfileFrame {
  std::string name;
  std::string file = {};  // shown beside the name; may be empty
  int64_t line = 0;       // 0: not known
  uint64_t address = 0;   // of the instruction; 0: there is none
};

/// A stack and what was measured for it. pprof adds up samples of the same stack.
struct ProfileSample {
  std::vector<int32_t> frames;  // innermost first, indices into Profile::frames
  std::vector<int64_t> values;  // one for each of Profile::values
};

struct Profile {
  std::vector<ProfileValue> values;
  int32_t shown_value = 0;  // index into `values`: what a viewer shows first
  std::vector<ProfileFrame> frames;
  std::vector<ProfileSample> samples;
  std::string program;               // that was measured
  std::vector<std::string> remarks;  // shown by `pprof -comments`
  int64_t begin_epoch_ns = 0;        // since 1970
  int64_t duration_ns = 0;
  ProfileValue period_type = {};  // between two samples; empty: there are none, everything was measured
  int64_t period = 0;
};

/// The bytes of a .pb.gz file: profile.proto, compressed with gzip. What is no UTF-8 becomes U+FFFD.
std::string encode_profile(const Profile& profile);

}  // namespace ferry
