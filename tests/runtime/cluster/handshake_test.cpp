#include "runtime/cluster/handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "comm/local_group.h"
#include "tests/support/in_good_time.h"

namespace ferry {
namespace {

void expect_error(ErrorCode code, const std::string& what, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << what;
  } catch (const Error& error) {
    EXPECT_STREQ(error_code_name(error.code()), error_code_name(code)) << error.what();
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

HandshakeReport terms(const std::vector<std::string>& lines, std::string place = "here") {
  HandshakeReport report{.complaint = {}, .terms = {}, .place = std::move(place)};
  for (const std::string& line : lines) report.terms.push_back({line});
  return report;
}

TEST(Handshake, ReportsSurviveTheTrip) {
  HandshakeReport report = terms({"--dtype bf16", "", std::string(5000, 'x') + "\n\ttail"});
  report.terms[1].may_differ = true;
  const HandshakeReport got = decode_report(encode_report(report), Rank{1});
  EXPECT_EQ(got.terms, report.terms);
  EXPECT_EQ(got.place, "here");
  EXPECT_FALSE(got.complaint);
  const HandshakeReport failed{.complaint = Error(ErrorCode::kNotFound, "no file"), .terms = {}, .place = {}};
  const std::optional<Error> complaint = decode_report(encode_report(failed), Rank{1}).complaint;
  ASSERT_TRUE(complaint);
  EXPECT_EQ(complaint->code(), ErrorCode::kNotFound);
  EXPECT_STREQ(complaint->what(), "no file");
}

TEST(Handshake, TooManyTermsAreRefused) {
  expect_error(ErrorCode::kInvalidArgument, "allowed: up to 65536", [] { encode_report(terms({std::string(70000, 'x')})); });
  EXPECT_THROW(encode_report(terms(std::vector<std::string>(256))), Error);
}

TEST(Handshake, DamagedReportsNameTheRank) {
  const std::vector<std::byte> good = encode_report(terms({"--dtype bf16"}));
  for (std::size_t size = 0; size < good.size(); ++size)
    expect_error(ErrorCode::kInternal, "rank 3's handshake: ", [&] { decode_report(std::span(good).first(size), Rank{3}); });
  std::vector<std::byte> longer = good;
  longer.push_back({});
  expect_error(ErrorCode::kInternal, "goes on behind", [&] { decode_report(longer, Rank{3}); });
  const std::vector<std::pair<std::size_t, const char*>> fields = {{0, "mark"},
                                                                   {4, "version 4294967295; allowed: 2 to 2"},
                                                                   {8, "error code 4294967295; allowed: 0 to 10"},
                                                                   {12, "number of texts"},
                                                                   {16, "text's length 4294967295; allowed: 0 to 65536"},
                                                                   {24, "term's mark 4294967295; allowed: 0 to 1"}};
  for (const auto& [at, what] : fields) {
    std::vector<std::byte> bytes = good;
    std::memset(bytes.data() + at, 0xff, 4);
    expect_error(ErrorCode::kInternal, what, [&] { decode_report(bytes, Rank{3}); });
  }
}

TEST(Handshake, EveryRankLearnsEveryReport) {
  const auto groups = make_local_groups(3);
  std::vector<std::thread> ranks;
  for (const auto& group : groups) {
    ranks.emplace_back([&group] {
      const int self = group->rank().value;
      const HandshakeReport own = terms({std::string(static_cast<std::size_t>(1 + 1000 * self), 'a')}, std::to_string(self));
      const auto reports = exchange_reports(*group, own, test::in_good_time());
      ASSERT_EQ(reports.size(), 3U);
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(reports[r].place, std::to_string(r));
        EXPECT_EQ(reports[r].terms.at(0).text.size(), 1 + 1000 * r);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Handshake, TermsThatCannotBeSentAreAComplaintOnEveryRank) {
  const auto groups = make_local_groups(2);
  const auto exchange = [&](std::size_t rank, std::size_t num_bytes) {
    const auto reports = exchange_reports(*groups[rank], terms({std::string(num_bytes, 'x')}), test::in_good_time());
    EXPECT_FALSE(reports.at(0).complaint);
    ASSERT_TRUE(reports.at(1).complaint);
    EXPECT_NE(std::string(reports[1].complaint->what()).find("allowed: up to 65536"), std::string::npos);
  };
  std::thread other([&] { exchange(1, 70000); });
  exchange(0, 10);
  other.join();
}

TEST(Handshake, ASilentRankIsNamed) {
  const auto groups = make_local_groups(2);
  expect_error(ErrorCode::kDeadlineExceeded, "rank 1",
               [&] { exchange_reports(*groups[0], terms({}), groups[0]->now() + std::chrono::milliseconds(50)); });
}

TEST(Handshake, AnOversizedReportIsRefusedBeforeItIsRead) {
  const auto groups = make_local_groups(2);
  std::thread hostile([&] {
    const uint64_t size = uint64_t{1} << 60;
    std::vector<std::byte> sizes(16);
    groups[1]->all_gather(std::as_bytes(std::span(&size, 1)), sizes, test::in_good_time());
  });
  expect_error(ErrorCode::kInternal, "rank 1's handshake has 1152921504606846976 bytes",
               [&] { exchange_reports(*groups[0], terms({}), test::in_good_time()); });
  hostile.join();
}

TEST(Handshake, TheFirstComplaintOrOtherTermIsTold) {
  const HandshakeReport ours = terms({"ferry 1 (build a)", "--dtype f32"}),
                        same = terms({"ferry 1 (build a)", "--dtype f32"}, "there");
  EXPECT_FALSE(find_disagreement(std::vector{ours, same}));
  EXPECT_STREQ(find_disagreement(std::vector{ours, same, terms({"ferry 1 (build b)", "--dtype f32"})})->what(),
               "rank 2 has ferry 1 (build b), the coordinator ferry 1 (build a); allowed: the same on every rank");
  EXPECT_STREQ(find_disagreement(std::vector{ours, terms({"ferry 1 (build a)"})})->what(),
               "rank 1 has nothing, the coordinator --dtype f32; allowed: the same on every rank");
  const HandshakeReport failed{.complaint = Error(ErrorCode::kNotFound, "no file"), .terms = {}, .place = {}};
  EXPECT_STREQ(find_disagreement(std::vector{ours, failed})->what(), "rank 1: no file");
  EXPECT_EQ(find_disagreement(std::vector{failed, ours})->code(), ErrorCode::kNotFound);
}

TEST(Handshake, WhatMayDifferIsToldAndNotRefused) {
  const auto on_device = [](const char* name) {
    HandshakeReport report = terms({"--dtype f32", std::string("--device ") + name});
    report.terms[1].may_differ = true;
    return report;
  };
  const HandshakeReport gpu = on_device("vulkan (a)"), other_gpu = on_device("vulkan (b)"),
                        cpu = terms({"--dtype f32", "--kernels avx2"}), other_cpu = terms({"--dtype f32", "--kernels ref"});
  for (const auto& alike : {std::vector{gpu, gpu}, std::vector{cpu, cpu}}) {
    EXPECT_FALSE(find_disagreement(alike));
    EXPECT_EQ(describe_difference(alike), "");
  }
  EXPECT_TRUE(find_disagreement(std::vector{cpu, other_cpu}));
  const std::vector mixed{gpu, gpu, cpu};
  EXPECT_FALSE(find_disagreement(mixed));
  EXPECT_EQ(describe_difference(mixed), "rank 2 has --kernels avx2, the coordinator --device vulkan (a)");
  const std::vector reverse{cpu, gpu, cpu, other_gpu};
  EXPECT_FALSE(find_disagreement(reverse));
  EXPECT_EQ(describe_difference(reverse),
            "rank 1 has --device vulkan (a), the coordinator --kernels avx2 (1 other rank differs, too)");
  EXPECT_FALSE(find_disagreement(std::vector{gpu, other_gpu}));
  HandshakeReport f32_only = cpu;
  f32_only.terms[0].text = "--dtype bf16";
  EXPECT_TRUE(find_disagreement(std::vector{gpu, f32_only})) << "the rest must still be the same";
}

}  // namespace
}  // namespace ferry
