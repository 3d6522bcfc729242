#include "profiler/archive/step_sketch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ferry {
namespace {

int16_t class_of(double seconds) {
  if (!(seconds > StepSketch::kLeast)) return 0;
  const double number = std::floor(std::log(seconds / StepSketch::kLeast) / std::log(StepSketch::kWidth));
  return static_cast<int16_t>(std::min(number, static_cast<double>(StepSketch::kMaxClass)));
}

/// As far from the class's begin as from its end, relatively.
double middle_of(int16_t step_class) {
  const double begin = StepSketch::kLeast * std::pow(StepSketch::kWidth, step_class);
  return 2 * begin * StepSketch::kWidth / (1 + StepSketch::kWidth);
}

}  // namespace

StepSketch::StepSketch(std::vector<Count> counts, double longest) : counts_(std::move(counts)), longest_(longest) {}

int64_t& StepSketch::count(int16_t step_class) {
  auto place = std::ranges::lower_bound(counts_, step_class, {}, &Count::first);
  if (place == counts_.end() || place->first != step_class) place = counts_.insert(place, {step_class, 0});
  return place->second;
}

void StepSketch::add(double seconds) {
  ++count(class_of(seconds));
  longest_ = std::max(longest_, seconds);
}

void StepSketch::add(const StepSketch& other) {
  for (const auto& [step_class, number] : other.counts_) count(step_class) += number;
  longest_ = std::max(longest_, other.longest_);
}

void StepSketch::subtract(const StepSketch& part) {
  for (const auto& [step_class, number] : part.counts_) count(step_class) -= number;
  std::erase_if(counts_, [](const Count& c) { return c.second <= 0; });
}

int64_t StepSketch::num_steps() const {
  int64_t total = 0;
  for (const auto& [step_class, number] : counts_) total += number;
  return total;
}

double StepSketch::quantile(double q) const {
  const int64_t total = num_steps();
  if (total == 0) return 0;
  int64_t left = std::clamp<int64_t>(std::llround(std::ceil(q * static_cast<double>(total))), 1, total);
  for (const auto& [step_class, number] : counts_) {
    left -= number;
    if (left <= 0) return std::min(middle_of(step_class), longest_);
  }
  return longest_;
}

}  // namespace ferry
