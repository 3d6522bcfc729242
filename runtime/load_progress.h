#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/clock.h"

namespace ferry {

/// How far a rank is with reading its weights, and a line about it every kLinePeriod:
///
///   ferry: rank 2: loading: 12.0 of 40.0 GiB (30 %)
///
/// A load that is over within kQuietLoad prints nothing. Any thread may call any method. `clock` outlives this.
class LoadProgress {
 public:
  static constexpr std::chrono::seconds kLinePeriod{10};
  static constexpr std::chrono::milliseconds kBarPeriod{200};  // of a line that is rewritten in place
  static constexpr std::chrono::seconds kQuietLoad{2};

  enum class Form {
    kLines,
    kInPlace,  // one line of a terminal, which each new one replaces
  };
  /// Gets text that is ready to be printed. One call at a time, unless a call takes longer than a period.
  using Print = std::function<void(const std::string& text)>;

  /// `who` begins every line and may be empty ("rank 2: ").
  LoadProgress(std::string who, Form form, Print print, Clock& clock = real_clock());

  /// So many more bytes of the checkpoint will be read. The first call starts the clock.
  void expect(int64_t bytes);
  /// So many more have been read.
  void add(int64_t bytes);
  /// All that was expected is there.
  void finish();

  struct State {
    int64_t done_bytes = 0;
    int64_t total_bytes = 0;  // that are known of so far
    double elapsed_s = 0;
  };
  State state() const;

 private:
  State current() const;
  std::string take_text(bool is_last);

  const std::string who_;
  const Form form_;
  const Print print_;
  Clock& clock_;
  mutable std::mutex mutex_;  // guards all below
  int64_t done_bytes_ = 0, total_bytes_ = 0;
  bool has_begun_ = false, has_printed_ = false;
  Clock::Time start_, next_line_;
};

/// "12.0 of 40.0 GiB (30 %)", in MiB below one GiB.
std::string describe(const LoadProgress::State& state);

/// For this process: lines on stderr that begin with its rank if a launcher started several, in place on a terminal.
std::unique_ptr<LoadProgress> stderr_load_progress();

}  // namespace ferry
