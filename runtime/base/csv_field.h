#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// A text as a field of a CSV file (RFC 4180): quoted where it holds a comma, a quote or a line break. Strangers name hosts,
/// models and threads: control characters but line feeds are written as "\x1b", and what a spreadsheet would take for a formula
/// has an apostrophe before it. A leading '-' is one only before something else than a word, so options stay what they are.
std::string csv_field(std::string_view text);

}  // namespace ferry
