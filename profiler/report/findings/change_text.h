#pragma once

#include <string>

namespace ferry {

/// How a figure's change is put: "more", "less", "many".
struct ChangeWords {
  const char* up;     // "25 % more"
  const char* down;   // "25 % less"
  const char* times;  // "26 × as many": from +200 % on, where a percentage is hard to picture
};

/// "25 % more", "4.0 % less", "26 × as many", "3.4 × as many". `change` is the figure's, as a share of what it was; `decimals`
/// are those of a percentage.
std::string change_text(double change, int decimals, const ChangeWords& words);

/// The same with what it may be off by, in the same unit, `error` being a share of what the figure was: "25 % more ± 5",
/// "26 × as many ± 2".
std::string change_text(double change, int decimals, const ChangeWords& words, double error);

}  // namespace ferry
