#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/small_capture.h"

namespace ferry::test {

/// A run of decode steps, each of 4 sequences on a coordinator and one worker: `wait_share` of a step waits for the worker's
/// answer, the rest multiplies by the head.
struct MadeRunOfSteps {
  std::string command = "ferry serve --model demo";
  std::vector<double> step_us;
  double wait_share = 0.5;
  uint32_t num_sequences = 4;
};

inline Capture make_run_of_steps(const MadeRunOfSteps& run) {
  uint64_t end = 0;
  for (const double us : run.step_us) end += static_cast<uint64_t>(1e3 * us);
  SmallCapture small(2, end);
  small.capture.info.command = run.command;
  small.capture.info.model.name = "demo";
  uint64_t at = 0;
  for (std::size_t s = 0; s < run.step_us.size(); ++s) {
    const SmallCapture::Where where{static_cast<uint32_t>(s), 0};
    const auto length = static_cast<uint64_t>(1e3 * run.step_us[s]);
    const auto wait = static_cast<uint64_t>(run.wait_share * static_cast<double>(length));
    small.step(where.step, Phase::kDecode, at, at + length, run.num_sequences, run.num_sequences);
    small.span(0, Zone::kWaitCombine, at, at + wait, 0, 1, where);
    small.span(0, Zone::kLmHead, at + wait, at + length, run.num_sequences, 0, where);
    small.span(1, Zone::kExperts, at, at + wait, run.num_sequences, 0, where);
    at += length;
  }
  return small.capture;
}

/// Lengths around `us`: each step's own noise, and a machine whose speed wanders (AR(1) with a memory of some hundred steps),
/// both as standard deviations, shares of it.
inline std::vector<double> noisy_steps(std::size_t count, double us, double own, double wandering, uint32_t seed) {
  constexpr double kMemory = 0.99;
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> lengths;
  double speed = wandering * normal(random);
  for (std::size_t i = 0; i < count; ++i) {
    speed = kMemory * speed + std::sqrt(1 - kMemory * kMemory) * wandering * normal(random);
    lengths.push_back(us * std::max(0.1, 1 + speed + own * normal(random)));
  }
  return lengths;
}

}  // namespace ferry::test
