#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "comm/op.h"

namespace ferry {

/// When rows of one coordinator that have come to a worker should wait a moment for those of another, to be computed with
/// them.
///
/// Coordinators that decode at the same pace stay as many layers apart as they happen to be, each waiting while the other's
/// rows are computed: their rows never meet. One that begins a step is therefore held until the other begins its next one; from
/// then on both come to each layer at nearly the same time, and wait for each other for as long as they differ in that. It
/// knows times only; whoever asks it decides whether merging pays. One thread.
class MergeWindow {
 public:
  /// Rows of `source` for `layer` have come, `num_tokens` of them; whether they begin a step. Sources are numbers that their
  /// owner chooses.
  bool note_rows(int source, int64_t step, int32_t layer, int64_t num_tokens, Deadline now);
  /// They were answered.
  void note_reply(int source, Deadline now);
  /// A source has gone.
  void forget(int source);

  /// Until when the rows of `source`, which have just come, should wait for those of another; nothing if for none.
  std::optional<Deadline> hold(int source, Deadline now) const;

  static constexpr int64_t kMostTokens = 128;  // of rows that wait and are waited for: prompts do neither
  /// For which rows wait at most: half of what a coordinator that has another holder waits before it doubts this worker. Steps
  /// that are further apart come together over several of them.
  static constexpr std::chrono::milliseconds kMostWait{25};

 private:
  using Duration = Deadline::duration;
  struct Source {
    int64_t step = -1;
    int32_t layer = -1;
    int64_t num_tokens = 0;
    bool is_waiting = false;  // its rows have come and are not answered
    Deadline step_begun{}, replied{};
    Duration gap{};        // from a reply to its next rows in a step
    Duration step_time{};  // from one step's first rows to the next one's
    int32_t first_layer = -1;
    std::vector<int32_t> next_layer;  // by layer; -1: not known
  };

  static Duration smooth(Duration old, Duration seen);
  static std::optional<Deadline> arrival(const Source& source, int32_t layer, Deadline now);

  std::map<int, Source> sources_;
};

}  // namespace ferry
