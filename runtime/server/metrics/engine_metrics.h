#pragma once

#include <optional>

#include "profiler/archive/archive_status.h"
#include "runtime/coordinator.h"
#include "runtime/engine_stats.h"
#include "runtime/model_info.h"
#include "runtime/server/otlp/span_count.h"
#include "runtime/worker_record.h"

namespace ferry {

class MetricsText;

/// What an engine tells of itself at one moment.
struct EngineReport {
  EngineLoad load;
  EngineStats stats;
  ModelInfo model;
  WorkerReport workers{};
  std::optional<ArchiveStatus> archive{};  // absent: no steps are kept (--trace-sample)
  std::optional<SpanCount> spans{};        // absent: nobody wants any (--otlp-traces-endpoint)
};

/// The names, types and buckets of vLLM (v1/metrics/loggers.py), so that what reads vLLM reads Ferry, and beside them "ferry:"
/// names for what vLLM has none for; see README.md. The labels model_name and engine are the caller's.
void write_engine_metrics(const EngineReport& report, MetricsText& text);

}  // namespace ferry
