#include "moe/remote/cost_fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

namespace ferry {
namespace {

constexpr double kMeanShare = 0.02;  // of a reply in a running mean, once there are many
constexpr double kFirstStep = 0.5;   // of a running median, relative: at first, as one over the square root of the replies
constexpr double kLastStep = 0.01;   // and at last
constexpr double kHalfWeightReplies = 256;  // of a class that counts half of one with very many
constexpr double kTieWeight = 0.01;         // of the first cost, in classes
constexpr double kOverheadTie = 0.01;       // of no overhead, likewise
constexpr double kLeastSpan = 4;            // of rows of an expert, from class to class, before anything can be seen
constexpr double kLeastChange = 1.1;        // of the ratio
constexpr std::size_t kUnknowns = 3;        // overhead, fixed, per_row

using Unknowns = std::array<double, kUnknowns>;
using NormalMatrix = std::array<Unknowns, kUnknowns>;

std::size_t class_of(int64_t number, std::size_t num_classes) {
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(static_cast<uint64_t>(number))) - 1, num_classes - 1);
}

/// Of a positive definite system, by elimination.
Unknowns solve(NormalMatrix a, Unknowns b) {
  for (std::size_t i = 0; i < kUnknowns; ++i) {
    for (std::size_t j = i + 1; j < kUnknowns; ++j) {
      const double factor = a[j][i] / a[i][i];
      for (std::size_t k = i; k < kUnknowns; ++k) a[j][k] -= factor * a[i][k];
      b[j] -= factor * b[i];
    }
  }
  for (std::size_t i = kUnknowns; i-- > 0;) {
    for (std::size_t k = i + 1; k < kUnknowns; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

void ExpertCostFit::learn(int64_t touched, int64_t rows, std::chrono::nanoseconds time, double speed) {
  if (touched <= 0 || rows < touched || time.count() <= 0) return;
  Class& at = classes_[class_of(touched, kTouchedClasses) * kRowClasses + class_of(rows / touched, kRowClasses)];
  const auto experts = static_cast<double>(touched), num_rows = static_cast<double>(rows);
  const double first_cost = first_.fixed * experts + first_.per_row * num_rows;
  const double seconds = std::chrono::duration<double>(time).count() * speed / first_cost;
  const double share = std::max(1 / static_cast<double>(++at.num_replies), kMeanShare);
  at.experts += share * (experts - at.experts);
  at.rows += share * (num_rows - at.rows);
  if (at.num_replies == 1) at.seconds = seconds;
  const double step = std::max(kFirstStep / std::sqrt(static_cast<double>(at.num_replies)), kLastStep);
  at.seconds *= seconds > at.seconds ? 1 + step : 1 / (1 + step);
}

/// In units in which the first cost of the median class is right: all unknowns are then near 1, or 0 of the overhead.
const ExpertCost& ExpertCostFit::fit() {
  std::array<double, kTouchedClasses * kRowClasses> units{};
  std::size_t num_classes = 0;
  double least_rows = 0, most_rows = 0;  // of an expert
  for (const Class& at : classes_) {
    if (at.num_replies < kMinReplies) continue;
    const double rows = at.rows / at.experts;
    least_rows = num_classes == 0 ? rows : std::min(least_rows, rows);
    most_rows = std::max(most_rows, rows);
    units[num_classes++] = at.seconds;
  }
  if (num_classes == 0 || most_rows < kLeastSpan * least_rows) return cost_;
  const auto middle = units.begin() + static_cast<std::ptrdiff_t>(num_classes / 2);
  std::nth_element(units.begin(), middle, units.begin() + static_cast<std::ptrdiff_t>(num_classes));
  NormalMatrix matrix{};
  Unknowns right{0, kTieWeight, kTieWeight};
  matrix[0][0] = kOverheadTie;
  matrix[1][1] = matrix[2][2] = kTieWeight;
  for (const Class& at : classes_) {
    if (at.num_replies < kMinReplies) continue;
    const double fixed = first_.fixed * at.experts, of_rows = first_.per_row * at.rows;
    const double time = (fixed + of_rows) * at.seconds / *middle;
    const Unknowns row{first_.fixed / time, fixed / time, of_rows / time};
    const auto num_replies = static_cast<double>(at.num_replies);
    const double weight = num_replies / (num_replies + kHalfWeightReplies);
    for (std::size_t i = 0; i < kUnknowns; ++i) {
      right[i] += weight * row[i];
      for (std::size_t j = 0; j < kUnknowns; ++j) matrix[i][j] += weight * row[i] * row[j];
    }
  }
  Unknowns found = solve(matrix, right);
  if (found[0] < 0) {  // there is no such overhead: without
    matrix[0] = {1, 0, 0};
    matrix[1][0] = matrix[2][0] = right[0] = 0;
    found = solve(matrix, right);
  }
  const double least = 1e-6;  // of what is not above 0
  const double ratio = std::clamp(first_.fixed / first_.per_row * std::max(found[1], least) / std::max(found[2], least),
                                  kLeastRatio, kMostRatio);
  const double change = ratio * cost_.per_row / cost_.fixed;
  if (std::max(change, 1 / change) > kLeastChange) cost_.fixed = ratio * cost_.per_row;
  return cost_;
}

}  // namespace ferry
