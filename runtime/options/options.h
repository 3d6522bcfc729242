#pragma once

#include <optional>
#include <string>

#include "runtime/options/batch_options.h"
#include "runtime/options/bench_compare_options.h"
#include "runtime/options/bench_options.h"
#include "runtime/options/devices_options.h"
#include "runtime/options/dump_options.h"
#include "runtime/options/elastic_options.h"
#include "runtime/options/engine_options.h"
#include "runtime/options/front_options.h"
#include "runtime/options/generate_options.h"
#include "runtime/options/inspect_options.h"
#include "runtime/options/plan_options.h"
#include "runtime/options/quantize_options.h"
#include "runtime/options/serve_options.h"
#include "runtime/options/tokenize_options.h"
#include "runtime/options/top_options.h"
#include "runtime/options/trace_options.h"

// The command line. Each command has a file: what it takes, the options for that, and what they must be together.

namespace ferry {

enum class Command {
  kServe,
  kGenerate,
  kDump,
  kBench,
  kBenchCompare,
  kBatch,
  kQuantize,
  kInspect,
  kTokenize,
  kTrace,
  kDevices,
  kTop,
  kPlan,
  kWorker,
  kFront
};

struct Options {
  Command command = Command::kGenerate;
  int timeout_factor = 1;  // of timeouts that have no option (set_timeout_factor)
  EngineOptions engine;
  GenerateOptions generate;
  ServeOptions serve;
  DumpOptions dump;
  BenchOptions bench;
  BenchCompareOptions bench_compare;
  BatchOptions batch;
  QuantizeOptions quantize;
  InspectOptions inspect;
  TokenizeOptions tokenize;
  TraceOptions trace;
  DevicesOptions devices;
  TopOptions top;
  PlanOptions plan;
  JoinOptions join;
  FrontOptions front;
};

/// What parsing decided: options to run with, or a text to print and an exit code (help, version, an error).
struct ParseResult {
  std::optional<Options> options;
  std::string message;  // one line for an error
  int exit_code = 0;    // 2 for an error
};

ParseResult parse_options(int argc, const char* const* argv);

}  // namespace ferry
