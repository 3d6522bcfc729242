#include "runtime/server/metrics/metrics_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace ferry {
namespace {

TEST(MetricsText, GaugesAndCounters) {
  MetricsText text;
  text.set_labels({{"model_name", "a \"b\"\\c\nd"}});
  text.begin("vllm:running", MetricKind::kGauge, "One \"line\",\nnot two \\.");
  text.add(3);
  text.add(0.1, {{"reason", "x"}});
  text.set_labels({});
  text.begin("done_total", MetricKind::kCounter, "Done.");
  text.add(123456789012345);
  text.add(std::numeric_limits<double>::infinity(), {{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(text.text(),
            "# HELP vllm:running One \"line\",\\nnot two \\\\.\n"
            "# TYPE vllm:running gauge\n"
            "vllm:running{model_name=\"a \\\"b\\\"\\\\c\\nd\"} 3\n"
            "vllm:running{model_name=\"a \\\"b\\\"\\\\c\\nd\",reason=\"x\"} 0.1\n"
            "# HELP done_total Done.\n"
            "# TYPE done_total counter\n"
            "done_total 123456789012345\n"
            "done_total{a=\"1\",b=\"2\"} +Inf\n");
}

TEST(MetricsText, BucketsOfHistogramsAddUp) {
  Histogram histogram({0.001, 0.5, 1, 200000});
  for (const double value : {0.25, 0.25, 1.0, 3e6}) histogram.observe(value);
  MetricsText text;
  text.begin("t_seconds", MetricKind::kHistogram, "T.");
  text.add(histogram, {{"engine", "0"}});
  EXPECT_EQ(text.text(),
            "# HELP t_seconds T.\n"
            "# TYPE t_seconds histogram\n"
            "t_seconds_bucket{engine=\"0\",le=\"0.001\"} 0\n"
            "t_seconds_bucket{engine=\"0\",le=\"0.5\"} 2\n"
            "t_seconds_bucket{engine=\"0\",le=\"1.0\"} 3\n"
            "t_seconds_bucket{engine=\"0\",le=\"200000.0\"} 3\n"
            "t_seconds_bucket{engine=\"0\",le=\"+Inf\"} 4\n"
            "t_seconds_sum{engine=\"0\"} 3000001.5\n"
            "t_seconds_count{engine=\"0\"} 4\n");
}

}  // namespace
}  // namespace ferry
