#include "profiler/export/pprof.h"

#include <string_view>
#include <unordered_map>

#include "profiler/export/gzip.h"
#include "profiler/export/pprof.pb.h"
#include "profiler/export/text_file.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

namespace wire = perftools::profiles;

constexpr uint64_t kProgramMapping = 1;

/// The profile's texts, each once; all others are indices of these.
class StringTable {
 public:
  explicit StringTable(wire::Profile& out) : out_(out) { index_of(""); }

  int64_t index_of(std::string_view text) {
    const auto [known, is_new] = indices_.try_emplace(repaired_text(text), out_.string_table_size());
    if (is_new) out_.add_string_table(known->first);
    return known->second;
  }

 private:
  wire::Profile& out_;
  std::unordered_map<std::string, int64_t> indices_;
};

void write_value_type(const ProfileValue& value, StringTable& strings, wire::ValueType& out) {
  out.set_type(strings.index_of(value.type));
  out.set_unit(strings.index_of(value.unit));
}

/// Frame f is location f + 1 of function f + 1: ids must not be 0. Without a system_name a function's name is one for people
/// already; from others pprof takes what stands in (), <> and [] (internal/symbolizer, demangleSingleFunction).
void write_frames(const Profile& profile, StringTable& strings, wire::Profile& out) {
  for (std::size_t f = 0; f < profile.frames.size(); ++f) {
    const ProfileFrame& frame = profile.frames[f];
    wire::Function& function = *out.add_function();
    function.set_id(f + 1);
    function.set_name(strings.index_of(frame.name));
    function.set_filename(strings.index_of(frame.file));
    wire::Location& location = *out.add_location();
    location.set_id(f + 1);
    location.set_mapping_id(kProgramMapping);
    location.set_address(frame.address);
    wire::Line& line = *location.add_line();
    line.set_function_id(f + 1);
    line.set_line(frame.line);
  }
}

void write_samples(const Profile& profile, wire::Profile& out) {
  for (const ProfileSample& sample : profile.samples) {
    FERRY_CHECK_EQ(sample.values.size(), profile.values.size()) << " values of a sample";
    wire::Sample& written = *out.add_sample();
    for (const int32_t frame : sample.frames) {
      FERRY_CHECK(frame >= 0 && static_cast<std::size_t>(frame) < profile.frames.size()) << " frame " << frame;
      written.add_location_id(static_cast<uint64_t>(frame) + 1);
    }
    for (const int64_t value : sample.values) written.add_value(value);
  }
}

}  // namespace

std::string encode_profile(const Profile& profile) {
  wire::Profile out;
  StringTable strings(out);
  for (const ProfileValue& value : profile.values) write_value_type(value, strings, *out.add_sample_type());
  if (!profile.values.empty()) {
    const auto shown = static_cast<std::size_t>(profile.shown_value);
    out.set_default_sample_type(strings.index_of(profile.values.at(shown).type));
  }
  wire::Mapping& program = *out.add_mapping();
  program.set_id(kProgramMapping);
  program.set_filename(strings.index_of(profile.program));
  program.set_has_functions(true);
  write_frames(profile, strings, out);
  write_samples(profile, out);
  out.set_time_nanos(profile.begin_epoch_ns);
  out.set_duration_nanos(profile.duration_ns);
  if (profile.period > 0) {
    write_value_type(profile.period_type, strings, *out.mutable_period_type());
    out.set_period(profile.period);
  }
  for (const std::string& remark : profile.remarks) out.add_comment(strings.index_of(remark));
  return gzip(out.SerializeAsString());
}

}  // namespace ferry
