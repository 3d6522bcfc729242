#pragma once

#include <filesystem>
#include <functional>

#include "launch/recording_cost.h"
#include "profiler/capture.h"
#include "runtime/engine.h"
#include "runtime/options/options.h"

// `--trace DIR` of commands that end by themselves: record all ranks from one point to another, then write everything.

namespace ferry {

/// Measures what the machine can do, for captures of a server to hold operators against, which takes about half a second and
/// 512 MiB for as long. Nothing is measured where a device computes or memory is short. For the thread that steps, before
/// anything is served.
void note_roofs(Engine& engine);

/// What --profile asks of captures.
TraceLevel trace_level(const Options& options);
/// Begins a capture. For the thread that steps the engine, between steps.
void start_trace(Engine& engine, const Options& options);
/// Ends it and collects every rank's part. For the same thread.
Capture finish_trace(Engine& engine);

/// What captures of `level` cost the work whose `rate` is tokens per second of a run of it, on all ranks. What the captures
/// hold is given up; starting them, which takes the recorder's threads some milliseconds beside the first steps, and collecting
/// them is not timed. For the thread that steps the engine, while no capture runs.
MeasuredCost measure_recording_cost(Engine& engine, TraceLevel level, int64_t num_pairs, const std::function<double()>& rate);

/// Writes the capture and what is derived from it, and says so on stderr. Throws Error.
void write_trace(const std::filesystem::path& directory, Capture capture);

}  // namespace ferry
