#pragma once

#include <filesystem>

#include "profiler/capture.h"
#include "runtime/engine.h"
#include "runtime/options/options.h"

// `--trace DIR` of commands that end by themselves: record all ranks from one point to another, then write everything.

namespace ferry {

/// Begins a capture. For the thread that steps the engine, between steps.
void start_trace(Engine& engine, const Options& options);
/// Ends it and collects every rank's part. For the same thread.
Capture finish_trace(Engine& engine);

/// Writes the capture and what is derived from it, and says so on stderr. Throws Error.
void write_trace(const std::filesystem::path& directory, Capture capture);

}  // namespace ferry
