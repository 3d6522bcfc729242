#include "moe/routing/routing_trace.h"

#include <gtest/gtest.h>

#include <cstring>

#include "moe/placement/load_file.h"
#include "moe/routing/drawn_routing.h"
#include "moe/routing/routing_export.h"
#include "moe/routing/routing_summary.h"
#include "tests/moe/routing/small_routing.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using test::small_routing;

std::string routing_bytes(const RoutingTrace& trace) {
  const std::vector<std::byte> bytes = encode_routing_trace(trace);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

RoutingTrace decode_text(const std::string& bytes) { return decode_routing_trace(std::as_bytes(std::span(bytes)), "file"); }

void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) {
  test::expect_error([&] { decode_text(bytes); }, ErrorCode::kInvalidArgument, parts);
}

/// The bytes with others in the place of `old`, which occurs.
std::string with(std::string bytes, const std::string& old, const std::string& now) {
  const std::size_t at = bytes.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return bytes.replace(at, old.size(), now);
}

TEST(RoutingTrace, BytesAreAsTheHeaderSays) {
  const std::string header = R"({"model":"small","num_experts":4,"top_k":2,"layers":[1,3],"num_steps":3,"num_left_out":0})";
  const std::string bytes = routing_bytes(small_routing());
  ASSERT_EQ(bytes.substr(0, 8), "FERRYRT1");
  EXPECT_EQ(bytes.substr(8, 4), std::string({static_cast<char>(header.size()), 0, 0, 0}));
  EXPECT_EQ(bytes.substr(12, header.size()), header);
  const std::string first_step(
      "\x07\0\0\0\0\0\0\0"
      "\0\0\0\0"
      "\x03\0\0\0"
      "\0\1\0\2\0\3"
      "\3\2\3\1\3\0",
      28);
  EXPECT_EQ(bytes.substr(12 + header.size(), 28), first_step);
  EXPECT_EQ(bytes.size(), 12 + header.size() + 3 * 16 + 28);
}

TEST(RoutingTrace, ComesBackTheSameWithOneAndTwoBytes) {
  for (const int64_t num_experts : {256, 257}) {
    const RoutingTrace trace = draw_routing({.model = "m", .num_experts = num_experts, .top_k = 9, .layers = {0, 5}},
                                            {.slope = 1, .decode_steps = 3, .decode_rows = 5, .prefill_rows = 11});
    const RoutingTrace again = decode_text(routing_bytes(trace));
    EXPECT_EQ(again.ids, trace.ids);
    EXPECT_EQ(again.shape.layers, trace.shape.layers);
    ASSERT_EQ(again.steps.size(), 4U);
    EXPECT_EQ(again.steps[3].num_rows, 11);
    EXPECT_EQ(again.steps[3].phase, RoutingPhase::kPrefill);
    EXPECT_EQ(again.num_rows(), 26);
  }
}

TEST(RoutingTrace, EveryCutIsRefused) {
  const std::string bytes = routing_bytes(small_routing());
  for (std::size_t size = 0; size < bytes.size(); ++size) expect_refused(bytes.substr(0, size), {});
  expect_refused(bytes + "x", {});
}

TEST(RoutingTrace, WhatCannotBeIsRefusedByName) {
  const std::string bytes = routing_bytes(small_routing());
  expect_refused(with(bytes, "RT1", "RT2"), {"does not begin with FERRYRT1"});
  expect_refused(with(bytes, "\"top_k\":2", "\"top_k\":5"), {"top_k is 5; allowed: 1 to 4"});
  expect_refused(with(bytes, "[1,3]", "[3,1]"), {"layers has 1"});
  expect_refused(with(bytes, "\"num_steps\":3", "\"num_steps\":4"), {"its header says 4"});
  const std::string rows("\0\0\0\0\x03\0\0\0", 8);
  expect_refused(with(bytes, rows, std::string("\2\0\0\0\x03\0\0\0", 8)), {"phase 2"});
  expect_refused(with(bytes, rows, std::string("\0\0\0\0\0\0\0\0", 8)), {"0 rows"});
  expect_refused(with(bytes, rows, std::string("\0\0\0\0\xff\xff\xff\0", 8)), {"that are left"});
  const std::string ids("\0\1\0\2\0\3", 6);
  expect_refused(with(bytes, ids, std::string("\0\4\0\2\0\3", 6)), {"expert 4; allowed: below 4"});
  expect_refused(with(bytes, ids, std::string("\0\0\0\2\0\3", 6)), {"twice"});
}

TEST(RoutingTrace, AnotherModelIsRefusedInOneLine) {
  const RoutingTrace trace = small_routing();
  RoutingShape model = trace.shape;
  model.model = "other name";
  require_shape(trace, model, "x");  // a name is no shape
  model.num_experts = 8;
  test::expect_error(
      [&] { require_shape(trace, model, "x"); }, ErrorCode::kInvalidArgument,
      {"x: routing of 2 layers of 4 experts, 2 a token; allowed: of the model's 2 layers of 8 experts, 2 a token"});
  model = trace.shape;
  model.layers = {0, 3};
  test::expect_error([&] { require_shape(trace, model, "x"); }, ErrorCode::kInvalidArgument, {"the first of which is 0"});
}

TEST(RoutingTrace, SummaryIsWhatACountByHandGives) {
  const RoutingTrace trace = small_routing();
  const RoutingSummary prefill = summarise_routing(trace, RoutingPhase::kPrefill);
  EXPECT_EQ(prefill.num_rows, 3);
  EXPECT_DOUBLE_EQ(prefill.touched, 4);
  EXPECT_DOUBLE_EQ(prefill.hottest, 2);  // 3 of 6 slots for 1 of 4 experts, in both layers
  EXPECT_EQ(prefill.hottest_layer, 1);
  EXPECT_EQ(prefill.hottest_expert, 0);
  const RoutingSummary decode = summarise_routing(trace, RoutingPhase::kDecode);
  EXPECT_EQ(decode.num_steps, 2);
  EXPECT_DOUBLE_EQ(decode.touched, (3 + 2 + 2 + 3) / 4.0);
  EXPECT_DOUBLE_EQ(decode.unused, 0);
}

TEST(RoutingTrace, DrawnRoutingIsAsSkewedAsAsked) {
  const RoutingShape shape{.model = "m", .num_experts = 64, .top_k = 4, .layers = {0, 1}};
  const RoutingSummary even = summarise_routing(draw_routing(shape, {.slope = 0}), RoutingPhase::kPrefill);
  const RoutingSummary skewed = summarise_routing(draw_routing(shape, {.slope = 1}), RoutingPhase::kPrefill);
  EXPECT_LT(even.hottest, 1.5);
  EXPECT_GT(skewed.hottest, 4);
  EXPECT_NEAR(skewed.zipf, 1, 0.25);
}

TEST(RoutingTrace, OtherToolsShapes) {
  const RoutingTrace trace = small_routing();
  const std::string csv = routing_csv(trace);
  EXPECT_EQ(csv.substr(0, csv.find('\n', 26) + 1), "layer,expert,rows,touched\n1,0,5,2\n");
  const std::string npy = routing_npy(trace);
  EXPECT_EQ(npy.size() % 64, 7 * 2 * 2 * 2);  // the header ends at a multiple of 64
  EXPECT_NE(npy.find("'shape': (7, 2, 2)"), std::string::npos);
  EXPECT_EQ(npy.substr(npy.size() - 8), std::string("\0\0\1\0\1\0\2\0", 8));  // the last row: layers 1 and 3
  EXPECT_EQ(read_expert_loads(routing_as(trace, "a.json"), "a.json").num_steps, 3);
  EXPECT_EQ(routing_as(trace, "a.ferryrt"), routing_bytes(trace));
  test::expect_error([&] { routing_as(trace, "a.txt"); }, ErrorCode::kInvalidArgument, {"a.txt", ".npy"});
}

}  // namespace
}  // namespace ferry
