#pragma once

#include "runtime/cluster.h"
#include "runtime/options/options.h"

// The subcommands of `ferry`, as rank 0 runs them; every one returns the exit code and throws Error. Other ranks run
// run_expert_worker.

namespace ferry {

int run_serve(const Options& options, Cluster& cluster);
int run_generate(const Options& options, Cluster& cluster);
int run_dump(const Options& options, Cluster& cluster);
int run_bench(const Options& options, Cluster& cluster);
int run_batch(const Options& options, Cluster& cluster);
/// These work on files, or on nothing: they need no job.
int run_quantize(const Options& options);
int run_inspect(const Options& options);
int run_tokenize(const Options& options);
int run_trace(const TraceOptions& options);
int run_bench_compare(const BenchCompareOptions& options);
int run_top(const TopOptions& options);
int run_plan(const Options& options);
int run_front(const FrontOptions& options);
int run_devices(const DevicesOptions& options, const std::filesystem::path& cache_folder);

}  // namespace ferry
