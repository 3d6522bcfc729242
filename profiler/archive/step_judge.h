#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "profiler/archive/kept_step.h"

namespace ferry {

/// Says of each step whether it stands out from its like, as steps come. Used by the thread that steps; allocates nothing.
class StepJudge {
 public:
  static constexpr double kLongFactor = 4;      // of the running median of its kind
  static constexpr double kLongAtLeast = 1e-3;  // seconds beyond it: less is the system's noise
  static constexpr double kSlowFactor = 1.5;    // of the same, for the slowest of an hour
  static constexpr int64_t kFewestOfHour = 100;
  static constexpr int64_t kPauseSeconds = 5;  // between two that took long, unless the later one is twice as bad

  /// `now_s`: seconds since 1970.
  std::optional<KeptFor> judge(const StepFacts& facts, int64_t now_s);

 private:
  static constexpr std::size_t kWindow = 32;  // the latest lengths of a kind
  static constexpr std::size_t kFewest = 16;  // that a median is taken of

  struct Like {
    StepKind kind;
    std::array<float, kWindow> lengths{};
    std::size_t num_added = 0;
    double median = 0;  // of up to kWindow lengths; 0: of too few
  };
  struct Hour {
    int64_t hour = -1;
    int64_t num_steps = 0;
    double slowest = 0;
  };

  Like& like(const StepKind& kind);
  static void add(Like& like, double seconds);
  bool is_slowest(const StepFacts& facts, double median, int64_t now_s);
  bool is_long(double seconds, double median, int64_t now_s);

  std::array<Like, 256> likes_{};  // by a hash of the kind: of two kinds with the same one the later stays
  std::array<Hour, 3> hours_{};    // by phase
  int64_t last_long_s_ = INT64_MIN / 2;
  double last_excess_ = 0;
};

}  // namespace ferry
