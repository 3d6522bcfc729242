#pragma once

#include <cstdint>
#include <string>

namespace ferry {

/// Refuses a regex that is longer than max_bytes or has more than max_parts parts with its counts multiplied out. Throws
/// Error{kInvalidArgument}, as below.
void check_pattern(const std::string& pattern, const std::string& path, int64_t max_bytes, int64_t max_parts);

/// A schema's pattern for the inside of a JSON string: what it matches needs no escapes there, so . and [^…] match no quote, no
/// backslash and no control character, and what names one is refused. Every text that matches the result whole matches
/// `pattern`. The compiler is led to its context-free expansion, since its automaton of version 0.2.8 forgets the first part of
/// an optional group inside JSON: "^a(b[0-9]+)?Z$" would let "a5Z" come.
std::string pattern_in_json(const std::string& pattern, const std::string& path);

}  // namespace ferry
