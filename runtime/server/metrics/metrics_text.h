#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/histogram.h"

namespace ferry {

enum class MetricKind { kCounter, kGauge, kHistogram };
using MetricLabels = std::vector<std::pair<std::string_view, std::string>>;  // names must be [a-zA-Z_][a-zA-Z0-9_]*

/// Writes metrics as Prometheus reads them: its text format 0.0.4.
///
///   MetricsText text;
///   text.set_labels({{"model_name", "demo"}});
///   text.begin("vllm:num_requests_running", MetricKind::kGauge, "Number of requests in model execution batches.");
///   text.add(3);
///   text.begin("vllm:request_success_total", MetricKind::kCounter, "Count of successfully processed requests.");
///   text.add(12, {{"finished_reason", "stop"}});
class MetricsText {
 public:
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

  /// Every following sample's first labels; none at first.
  void set_labels(MetricLabels labels) { labels_ = std::move(labels); }

  /// The samples that follow are this metric's. Each metric begins once.
  void begin(std::string_view name, MetricKind kind, std::string_view help);
  void add(double value, const MetricLabels& labels = {});
  /// Of a histogram.
  void add(const Histogram& histogram, const MetricLabels& labels = {});

  const std::string& text() const { return text_; }

 private:
  void add_sample(std::string_view suffix, const MetricLabels& labels, std::string_view bound, double value);

  MetricLabels labels_;
  std::string name_;
  std::string text_;
};

}  // namespace ferry
