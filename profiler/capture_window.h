#pragma once

#include <cstdint>
#include <optional>

#include "profiler/capture.h"

namespace ferry {

/// Steps that a capture holds wholly, on every rank that handed something in.
struct CaptureWindow {
  uint32_t first_step = 0, last_step = 0;   // inclusive
  int64_t begin_ns = 0, end_ns = 0;         // coordinator's clock: the first step's begin, the last one's end
  uint64_t begin_ticks = 0, end_ticks = 0;  // the same, exactly: the coordinator's own ticks
};

/// The moment, in ticks of the coordinator, from which on every rank holds all it recorded: the latest of their begins.
uint64_t find_common_begin(const Capture& capture);

/// All steps that lie wholly between `begin` (ticks of the coordinator) and the first end of a rank; absent if there is none.
/// A rank's own time is RankCapture::begin to end, as Recorder::snapshot() sets them.
std::optional<CaptureWindow> find_window(const Capture& capture, uint64_t begin);

/// Cuts every rank to `window`: its begin and end, its records (those of a step by the step's number, so that no message loses
/// its other end to a clock's error), its preemptions. What began before and reaches into the window is kept.
void cut_to(const CaptureWindow& window, Capture& capture);

/// Cuts every rank to the moment of its end, for a capture without a window: nothing of it is left.
void cut_to_nothing(Capture& capture);

}  // namespace ferry
