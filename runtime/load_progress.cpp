#include "runtime/load_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "comm/mpi/mpi_group.h"

namespace ferry {

LoadProgress::LoadProgress(std::string who, Form form, Print print, Clock& clock)
    : who_(std::move(who)), form_(form), print_(std::move(print)), clock_(clock) {}

void LoadProgress::expect(int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  total_bytes_ += bytes;
  if (has_begun_) return;
  has_begun_ = true;
  start_ = clock_.now();
  next_line_ = start_ + (form_ == Form::kInPlace ? Clock::Duration(kQuietLoad) : Clock::Duration(kLinePeriod));
}

// Text is printed without the lock: a reader that has stopped must not hold up those who ask for the state.
void LoadProgress::add(int64_t bytes) {
  std::string text;
  {
    const std::scoped_lock lock(mutex_);
    done_bytes_ += bytes;
    const Clock::Time now = clock_.now();
    if (!has_begun_ || now < next_line_) return;
    next_line_ = now + (form_ == Form::kInPlace ? Clock::Duration(kBarPeriod) : Clock::Duration(kLinePeriod));
    text = take_text(/*is_last=*/false);
  }
  print_(text);
}

void LoadProgress::finish() {
  std::string text;
  {
    const std::scoped_lock lock(mutex_);
    if (!has_begun_ || (!has_printed_ && clock_.now() - start_ < kQuietLoad)) return;
    text = take_text(/*is_last=*/true);
  }
  print_(text);
}

LoadProgress::State LoadProgress::state() const {
  const std::scoped_lock lock(mutex_);
  return current();
}

/// Needs mutex_.
LoadProgress::State LoadProgress::current() const {
  const double elapsed_s = has_begun_ ? std::chrono::duration<double>(clock_.now() - start_).count() : 0;
  return {.done_bytes = done_bytes_, .total_bytes = total_bytes_, .elapsed_s = elapsed_s};
}

/// Needs mutex_.
std::string LoadProgress::take_text(bool is_last) {
  has_printed_ = true;
  const State state = current();
  std::string line = "ferry: " + who_ + "loading: " + describe(state);
  if (is_last) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, " in %.1f s", state.elapsed_s);
    line += seconds;
  }
  if (form_ == Form::kInPlace) line = "\r" + line + "\033[K";
  return form_ == Form::kInPlace && !is_last ? line : line + "\n";
}

std::string describe(const LoadProgress::State& state) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  const auto done = static_cast<double>(state.done_bytes), total = static_cast<double>(state.total_bytes);
  const double unit = total < kGiB ? kMiB : kGiB;
  const int percent = total > 0 ? static_cast<int>(std::clamp(100 * done / total, 0.0, 100.0)) : 0;
  char text[96];
  std::snprintf(text, sizeof text, "%.1f of %.1f %s (%d %%)", done / unit, total / unit, unit == kMiB ? "MiB" : "GiB", percent);
  return text;
}

std::unique_ptr<LoadProgress> stderr_load_progress() {
  const int rank = MpiRuntime::launch_rank();
  const auto form = isatty(STDERR_FILENO) == 1 ? LoadProgress::Form::kInPlace : LoadProgress::Form::kLines;
  return std::make_unique<LoadProgress>(rank == 0 ? "" : "rank " + std::to_string(rank) + ": ", form,
                                        [](const std::string& text) { std::fputs(text.c_str(), stderr); });
}

}  // namespace ferry
