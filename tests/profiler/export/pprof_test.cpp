#include "profiler/export/pprof.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "profiler/export/gzip.h"
#include "profiler/export/operator_profile.h"
#include "profiler/export/pprof.pb.h"
#include "profiler/report/views/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

namespace wire = perftools::profiles;

std::string unzipped(std::string bytes) {
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string result;
  std::array<char, 4096> piece{};
  int state = Z_OK;
  while (state == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = piece.size();
    state = inflate(&stream, Z_NO_FLUSH);
    result.append(piece.data(), piece.size() - stream.avail_out);
  }
  EXPECT_EQ(state, Z_STREAM_END);
  EXPECT_EQ(stream.avail_in, 0U);
  inflateEnd(&stream);
  return result;
}

wire::Profile decoded(const std::string& bytes) {
  wire::Profile profile;
  EXPECT_TRUE(profile.ParseFromString(unzipped(bytes)));
  return profile;
}

std::string text(const wire::Profile& profile, int64_t index) { return profile.string_table(static_cast<int>(index)); }

/// Outermost first, with ';' between.
std::string stack(const wire::Profile& profile, const wire::Sample& sample) {
  std::string result;
  for (auto id = sample.location_id().rbegin(); id != sample.location_id().rend(); ++id) {
    const wire::Location& location = profile.location(static_cast<int>(*id - 1));
    EXPECT_EQ(location.id(), *id);
    const wire::Function& function = profile.function(static_cast<int>(location.line(0).function_id() - 1));
    result += (result.empty() ? "" : ";") + text(profile, function.name());
  }
  return result;
}

TEST(Gzip, ComesBackWhateverItsLength) {
  for (const std::size_t length : {0, 1, 65'535, 65'536, 1'000'000}) {
    std::string bytes(length, '\0');
    uint32_t state = 1;
    for (char& c : bytes) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    EXPECT_EQ(unzipped(gzip(bytes)), bytes) << length;
  }
}

TEST(Pprof, SaysWhatItWasTold) {
  const Profile profile{.values = {{"cpu", "nanoseconds"}, {"samples", "count"}},
                        .shown_value = 1,
                        .frames = {{"main", "main.cpp", 7, 0x40}, {"work"}},
                        .samples = {{{1, 0}, {5, 6}}, {{0}, {7, -8}}},
                        .program = "program",
                        .remarks = {"as it was"},
                        .begin_epoch_ns = 123,
                        .duration_ns = 45,
                        .period_type = {"cpu", "nanoseconds"},
                        .period = 1000};
  const wire::Profile read = decoded(encode_profile(profile));
  EXPECT_EQ(text(read, 0), "");
  ASSERT_EQ(read.sample_type_size(), 2);
  EXPECT_EQ(text(read, read.sample_type(0).type()) + text(read, read.sample_type(0).unit()), "cpunanoseconds");
  EXPECT_EQ(text(read, read.default_sample_type()), "samples");
  ASSERT_EQ(read.sample_size(), 2);
  EXPECT_EQ(stack(read, read.sample(0)), "main;work");
  EXPECT_EQ(read.sample(0).value(0), 5);
  EXPECT_EQ(read.sample(1).value(1), -8);
  EXPECT_EQ(read.location(0).address(), 0x40U);
  EXPECT_EQ(read.location(0).line(0).line(), 7);
  EXPECT_EQ(text(read, read.mapping(0).filename()), "program");
  EXPECT_EQ(text(read, read.comment(0)), "as it was");
  EXPECT_EQ(read.time_nanos(), 123);
  EXPECT_EQ(read.duration_nanos(), 45);
  EXPECT_EQ(read.period(), 1000);
  EXPECT_EQ(text(read, read.period_type().type()), "cpu");
}

TEST(Pprof, NamesMayBeAnything) {
  const std::string hostile("a\0b\xff\"\n{", 7);
  const Profile profile{
      .values = {{hostile, hostile}}, .frames = {{hostile, hostile}}, .samples = {{{0}, {1}}}, .program = hostile};
  const wire::Profile read = decoded(encode_profile(profile));  // which refuses what is no UTF-8
  EXPECT_EQ(stack(read, read.sample(0)), std::string("a\0b\uFFFD\"\n{", 9));
}

TEST(OperatorProfile, AddsUpToTheOperatorTable) {
  const ReportInput input(make_made_capture());
  const wire::Profile read = decoded(encode_operator_profile(input));
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>> found;  // by rank and operator
  for (const wire::Sample& sample : read.sample()) {
    const std::string all = stack(read, sample);
    auto& [ns, count] = found[{all.substr(0, all.find(';')), all.substr(all.rfind(';') + 1)}];
    ns += sample.value(0);
    count += sample.value(1);
  }
  const Table table = make_operator_view(input);
  EXPECT_EQ(found.size(), table.rows.size());
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const std::string rank = "rank " + std::to_string(std::get<int64_t>(test::cell(table, r, "rank")));
    const auto& [ns, count] = found[{rank, test::text(table, r, "operator")}];
    EXPECT_EQ(ns, test::ns(table, r, "total_us")) << rank << " " << test::text(table, r, "operator");
    EXPECT_EQ(count, std::get<int64_t>(test::cell(table, r, "count")));
  }
}

TEST(OperatorProfile, StacksSayWhereAnOperatorIs) {
  const ReportInput input(make_made_capture());
  const wire::Profile read = decoded(encode_operator_profile(input));
  std::set<std::string> stacks;
  for (const wire::Sample& sample : read.sample()) stacks.insert(stack(read, sample));
  EXPECT_TRUE(stacks.contains("rank 0;decode;full_attention;attention;FusedInferAttentionScore"));
  EXPECT_TRUE(stacks.contains("rank 1;prefill;linear_attention;experts;GroupedMatmulSwiglu"));
  EXPECT_TRUE(stacks.contains("rank 0;decode;outside of layers;head;MatMul.lm_head"));
}

}  // namespace
}  // namespace ferry
