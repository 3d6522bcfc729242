#include <gtest/gtest.h>

#include "profiler/report/views/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::is_empty;
using test::ns;
using test::number;
using test::row_with;
using test::text;

/// "kernel | kernel" of each row of a phase.
std::string rows_of(const Table& table, const std::string& phase) {
  std::string rows;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    if (text(table, r, "phase") == phase) rows += text(table, r, "left_kernel") + " | " + text(table, r, "right_kernel") + "\n";
  }
  return rows;
}

TEST(KernelLayerViewTest, SecondHalvesShareRowsAndMixersStandApart) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const Table table = make_kernel_layer_view(input);
  EXPECT_EQ(rows_of(table, "decode"),
            "RmsNorm | RmsNorm\n"
            "MatMul.in_proj_qkv | \ncausal_conv1d | \nfused_recurrent_gated_delta_rule | \nMatMul.out_proj | \n"
            " | MatMul.q_proj\n | FusedInferAttentionScore\n | MatMul.o_proj\n"
            "Add | Add\n"
            "MatMul.router | MatMul.router\nMoeGatingTopK | MoeGatingTopK\n"
            "MoeInitRouting | MoeInitRouting\nMoeDistributeDispatch | MoeDistributeDispatch\n"
            "MatMulSwiglu.shared_gate_up | MatMulSwiglu.shared_gate_up\nMatMul.shared_down | MatMul.shared_down\n"
            "wait.combine | wait.combine\nMoeTokenUnpermute | MoeTokenUnpermute\nSharedExpertMerge | SharedExpertMerge\n"
            "Add | Add\n");
  const std::size_t dispatch = row_with(table, {{"phase", "decode"}, {"left_kernel", "MoeDistributeDispatch"}});
  EXPECT_EQ(ns(table, dispatch, "left_us"), 2000) << "to both workers";
  const std::size_t q_proj = row_with(table, {{"phase", "decode"}, {"right_kernel", "MatMul.q_proj"}});
  EXPECT_EQ(ns(table, q_proj, "difference_us"), 4000);
  EXPECT_TRUE(is_empty(table, q_proj, "left_us"));
  EXPECT_EQ(text(table, q_proj, "part"), "attention");
  EXPECT_EQ(text(table, q_proj, "left_type"), "linear_attention");
  EXPECT_EQ(text(table, q_proj, "right_type"), "full_attention");
  double left = 0, right = 0, difference = 0, left_us = 0, right_us = 0;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    if (text(table, r, "phase") != "prefill") continue;
    left += is_empty(table, r, "left_share") ? 0 : number(table, r, "left_share");
    right += is_empty(table, r, "right_share") ? 0 : number(table, r, "right_share");
    left_us += is_empty(table, r, "left_us") ? 0 : number(table, r, "left_us");
    right_us += is_empty(table, r, "right_us") ? 0 : number(table, r, "right_us");
    difference += number(table, r, "difference_us");
  }
  EXPECT_NEAR(left, 1, 1e-9);
  EXPECT_NEAR(right, 1, 1e-9);
  EXPECT_NEAR(difference, right_us - left_us, 1e-6);
}

TEST(KernelLayerViewTest, MeansAreOverLayersStepsAndMicroBatches) {
  test::SmallCapture small(1, 100'000);
  small.capture.info.model.layer_types = {"short_conv", "full_attention", "short_conv", "mtp"};
  for (const uint32_t s : {0U, 1U}) {
    const uint64_t t = 10'000 * s;
    small.step(s, Phase::kDecode, t, t + 9000, 2, 2);
    for (const uint8_t mb : {uint8_t{0}, uint8_t{1}}) {
      const uint64_t m = t + 1000 * mb;
      small.span(0, Zone::kShortConv, m, m + 100, 1, 1, {s, 0, mb})
          .span(0, Zone::kShortConv, m + 100, m + 400, 1, 1, {s, 2, mb});
      small.span(0, Zone::kAttention, m + 400, m + 450, 1, 1, {s, 1, mb});
    }
    small.span(0, Zone::kAdd, t + 3000, t + 3010, 1, 0, {s, 0, 0})
        .span(0, Zone::kDenseDown, t + 3010, t + 3030, 1, 0, {s, 0, 0});
    small.span(0, Zone::kAdd, t + 3030, t + 3060, 1, 0, {s, 0, 0}).span(0, Zone::kQProj, t + 5000, t + 6000, 1, 0, {s, 3});
  }
  const Table table = make_kernel_layer_view(ReportInput(small.capture));
  EXPECT_EQ(rows_of(table, "decode"), "FusedInferAttentionScore | \n | short_conv1d\n | Add\n | MatMul.down\n | Add\n");
  EXPECT_EQ(text(table, 0, "right_type"), "short_conv");
  EXPECT_EQ(ns(table, 1, "right_us"), 400) << "(100 + 300) of two micro-batches over two layers";
  EXPECT_EQ(ns(table, 2, "right_us"), 5);
  EXPECT_EQ(ns(table, 4, "right_us"), 15) << "the second half's";
  EXPECT_EQ(ns(table, 0, "left_us"), 100);
}

/// The residual of the layer before is added at the begin of each but the first.
TEST(KernelLayerViewTest, AKernelAtBothEndsOfAMixerStandsBehindIt) {
  test::SmallCapture small(1, 10'000);
  small.capture.info.model.layer_types = {"linear_attention", "linear_attention"};
  small.step(0, Phase::kDecode, 0, 9000, 1, 1);
  small.span(0, Zone::kInProjQkv, 0, 100, 1, 0, {0, 0}).span(0, Zone::kOutProj, 100, 200, 1, 0, {0, 0});
  small.span(0, Zone::kAdd, 200, 300, 1, 0, {0, 0}).span(0, Zone::kAdd, 300, 400, 1, 0, {0, 1});
  small.span(0, Zone::kInProjQkv, 400, 500, 1, 0, {0, 1}).span(0, Zone::kOutProj, 500, 600, 1, 0, {0, 1});
  small.span(0, Zone::kAdd, 600, 700, 1, 0, {0, 1});
  const Table table = make_kernel_layer_view(ReportInput(small.capture));
  EXPECT_EQ(rows_of(table, "decode"), "MatMul.in_proj_qkv | \nMatMul.out_proj | \nAdd | \n");
  EXPECT_EQ(ns(table, 2, "left_us"), 150);
}

TEST(KernelLayerViewTest, OneTypeOfLayersStandsAlone) {
  Capture capture = make_made_capture({.world_size = 1, .num_layers = 2});
  for (std::string& type : capture.info.model.layer_types) type = "full_attention";
  const Table table = make_kernel_layer_view(ReportInput(capture));
  ASSERT_FALSE(table.rows.empty());
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    EXPECT_EQ(text(table, r, "right_type"), "");
    EXPECT_TRUE(is_empty(table, r, "right_us"));
    EXPECT_TRUE(is_empty(table, r, "difference_us"));
    EXPECT_FALSE(is_empty(table, r, "left_us"));
  }
  capture.info.model.layer_types.clear();
  EXPECT_TRUE(make_kernel_layer_view(ReportInput(capture)).rows.empty()) << "nothing is known of its layers";
}

}  // namespace
}  // namespace ferry
