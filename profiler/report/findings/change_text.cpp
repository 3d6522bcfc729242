#include "profiler/report/findings/change_text.h"

#include <cmath>

#include "profiler/report/findings/format.h"

namespace ferry {
namespace {

bool is_told_as_factor(double change) {
  constexpr double kFrom = 200;  // per cent, as they would be written
  return std::round(100 * change) >= kFrom;
}

/// Of a factor: two digits where it is small, as of 3.4.
int factor_decimals(double factor) { return factor < 9.95 ? 1 : 0; }

}  // namespace

std::string change_text(double change, int decimals, const ChangeWords& words) {
  const double factor = 1 + change;
  if (is_told_as_factor(change)) return format("%.*f × as %s", factor_decimals(factor), factor, words.times);
  return format("%.*f %% %s", decimals, 100 * std::abs(change), change >= 0 ? words.up : words.down);
}

std::string change_text(double change, int decimals, const ChangeWords& words, double error) {
  const std::string text = change_text(change, decimals, words);
  if (is_told_as_factor(change)) return text + format(" ± %.*f", factor_decimals(1 + change), error);
  return text + format(" ± %.*f", decimals, 100 * error);
}

}  // namespace ferry
