#include <gtest/gtest.h>

#include <algorithm>

#include "profiler/report/views/layer_types.h"
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

/// Two decode steps of one attention layer with experts on rank 1; the second takes 100 ns more in attention.
test::SmallCapture two_decodes() {
  test::SmallCapture small(2, 3000);
  small.capture.info.model.layer_types = {"full_attention"};
  small.capture.info.model.operators = {{.zone = Zone::kGroupedDown, .num_layers = 1}};
  for (const uint32_t s : {0U, 1U}) {
    const uint64_t t = 1000 * s, more = 100 * s;
    small.step(s, Phase::kDecode, t, t + 900, 1, 1);
    small.span(0, Zone::kEmbedding, t + 10, t + 30, 1, 0, {s, kNoLayer});
    small.span(0, Zone::kAttention, t + 50, t + 150 + more, 1, 1, {s, 0});
    small.span(0, Zone::kRouter, t + 260, t + 290, 1, 0, {s, 0});
    small.span(0, Zone::kCombineReceive, t + 300, t + 500, 8, 1, {s, 0});
    small.span(0, Zone::kCombine, t + 310, t + 560, 1, 0, {s, 0});
    small.span(0, Zone::kWaitCombine, t + 350, t + 500, 0, 1, {s, 0});
    small.span(1, Zone::kGroupedGateUp, t + 320, t + 380 + more, 1, 1, {s, 0});
  }
  return small;
}

TEST(LayerViewTest, OneLayerByHand) {
  const ReportInput input(two_decodes().capture);
  const Table table = make_layer_view(input);
  const std::size_t layer = row_with(table, {{"layer", int64_t{0}}, {"phase", "decode"}});
  EXPECT_EQ(text(table, layer, "layer_type"), "full_attention");
  EXPECT_EQ(ns(table, layer, "attention_us"), 150);  // 100 and 200
  EXPECT_EQ(ns(table, layer, "router_us"), 30);
  EXPECT_EQ(ns(table, layer, "combine_us"), 100);  // 250 without the 150 of its wait
  EXPECT_EQ(ns(table, layer, "wait_us"), 150);
  EXPECT_EQ(ns(table, layer, "total_us"), 430);
  EXPECT_EQ(ns(table, layer, "p99_us"), 480);
  EXPECT_EQ(ns(table, layer, "exposed_us"), 160);  // [300, 310) and [350, 500): combine computes in between
  EXPECT_EQ(ns(table, layer, "worker_experts_us"), 110);
  const std::size_t rest = row_with(table, {{"layer", int64_t{-1}}, {"phase", "decode"}});
  EXPECT_EQ(ns(table, rest, "head_us"), 20);
  EXPECT_EQ(ns(table, rest, "other_us"), 450);  // the step's own time
  EXPECT_TRUE(is_empty(table, rest, "worker_experts_us"));
}

TEST(LayerViewTest, LayersAddUpToTheStep) {
  for (const MadeRun& run : {MadeRun{}, MadeRun{.world_size = 1, .num_layers = 7}}) {
    const ReportInput input(make_made_capture(run));
    const Table layers = make_layer_view(input), types = make_layer_type_view(input), phases = make_phase_view(input);
    for (const char* phase : {"prefill", "decode"}) {
      double total_us = 0, exposed_us = 0, types_us = 0, shares = 0;
      for (std::size_t r = 0; r < layers.rows.size(); ++r) {
        if (text(layers, r, "phase") != phase) continue;
        total_us += number(layers, r, "total_us");
        exposed_us += number(layers, r, "exposed_us");
      }
      for (std::size_t r = 0; r < types.rows.size(); ++r) {
        if (text(types, r, "phase") != phase) continue;
        types_us += number(types, r, "us_per_step");
        shares += number(types, r, "step_share");
      }
      const std::size_t row = row_with(phases, {{"phase", phase}});
      EXPECT_NEAR(total_us, number(phases, row, "us_per_step"), 1e-9);
      EXPECT_NEAR(exposed_us * number(phases, row, "steps"), number(phases, row, "exposed_us"), 1e-9);
      EXPECT_NEAR(types_us, number(phases, row, "us_per_step"), 1e-9);
      EXPECT_NEAR(shares, 1, 1e-12);
    }
  }
}

TEST(LayerTypeViewTest, WaitsForExpertsAreTheMoeBlocks) {
  const ReportInput input(two_decodes().capture);
  const Table table = make_layer_type_view(input);
  const std::size_t moe = row_with(table, {{"layer_type", "moe"}});
  EXPECT_EQ(ns(table, moe, "us_per_step"), 280);  // router 30, combine 100, wait 150
  EXPECT_EQ(ns(table, moe, "wait_us"), 150);
  EXPECT_EQ(number(table, moe, "count_per_step"), 1);
  EXPECT_NEAR(number(table, moe, "step_share"), 280.0 / 900, 1e-12);
  EXPECT_EQ(ns(table, row_with(table, {{"layer_type", "full_attention"}}), "us_each"), 150);
  EXPECT_TRUE(is_empty(table, row_with(table, {{"layer_type", "embed"}}), "us_each"));
}

/// Two layers of short convolutions, one with a dense network and one with experts.
TEST(LayerTypeViewTest, EveryKindOfLayerHasARow) {
  test::SmallCapture small(1, 3000);
  small.capture.info.model.layer_types = {"short_conv", "short_conv"};
  small.capture.info.model.operators = {{.zone = Zone::kGroupedDown, .num_layers = 1},
                                        {.zone = Zone::kDenseDown, .num_layers = 1}};
  small.step(0, Phase::kDecode, 0, 900, 1, 1);
  small.span(0, Zone::kShortConv, 100, 140, 1, 0, {0, 0});
  small.span(0, Zone::kDenseDown, 200, 300, 1, 0, {0, 0});
  small.span(0, Zone::kShortConv, 400, 460, 1, 0, {0, 1});
  small.span(0, Zone::kRouter, 500, 530, 1, 0, {0, 1});
  const ReportInput input(small.capture);
  const Table table = make_layer_type_view(input);
  const std::size_t conv = row_with(table, {{"layer_type", "short_conv"}});
  EXPECT_EQ(ns(table, conv, "us_per_step"), 100);
  EXPECT_EQ(number(table, conv, "count_per_step"), 2);
  EXPECT_EQ(ns(table, conv, "us_each"), 50);
  EXPECT_EQ(ns(table, row_with(table, {{"layer_type", "dense"}}), "us_each"), 100);
  EXPECT_EQ(ns(table, row_with(table, {{"layer_type", "moe"}}), "us_each"), 30);
  double shares = 0;
  for (std::size_t r = 0; r < table.rows.size(); ++r) shares += number(table, r, "step_share");
  EXPECT_NEAR(shares, 1, 1e-12);
}

TEST(LayerTypeViewTest, WhatGuessesDraftsIsNoLayerOfTheStep) {
  test::SmallCapture small(1, 1000);
  small.capture.info.model.layer_types = {"full_attention", "mtp"};
  small.step(0, Phase::kDecode, 0, 900, 1, 1);
  small.span(0, Zone::kAttention, 100, 150, 1, 0, {0, 0});
  small.span(0, Zone::kDraft, 500, 800, 1, 1, {0, kNoLayer});
  small.span(0, Zone::kAttention, 550, 650, 1, 0, {0, 1});
  small.span(0, Zone::kLmHead, 700, 750, 1, 0, {0, kNoLayer});
  const ReportInput input(small.capture);
  const Table types = make_layer_type_view(input);
  EXPECT_EQ(ns(types, row_with(types, {{"layer_type", "full_attention"}}), "us_each"), 50);
  EXPECT_EQ(ns(types, row_with(types, {{"layer_type", "draft"}}), "us_per_step"), 300);
  const Table layers = make_layer_view(input);
  EXPECT_EQ(ns(layers, row_with(layers, {{"layer_type", "mtp"}}), "attention_us"), 100);
}

TEST(LayerTypeViewTest, EveryZoneIsOfAKindThatTheTableHas) {
  for (int z = 0; z < kNumZones; ++z) {
    const std::string_view type = layer_type_of(static_cast<Zone>(z));
    EXPECT_NE(std::find(kLayerTypes.begin(), kLayerTypes.end(), type), kLayerTypes.end()) << type;
  }
}

}  // namespace
}  // namespace ferry
