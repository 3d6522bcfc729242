#pragma once

#include <cstdint>
#include <string>
#include <utility>

// What a template may take at most. Templates and what they are given are the work of strangers: each bound ends a rendering
// with one line that names it.

namespace ferry::jinja {

struct Limits {
  int64_t template_bytes = int64_t{1} << 20;  // the longest of well-known models have 20 KB
  int nesting = 150;                          // of blocks and expressions in the text of a template
  int depth = 1200;                           // of blocks, expressions and calls while it is rendered; each takes stack
  int value_depth = 100;                      // of lists and dicts within each other
  int64_t range_items = 100'000;              // of one range(), as jinja2's sandbox has it
  int64_t steps = 50'000'000;                 // expressions, comparisons, items and a few bytes of text that are looked at
  int64_t held_bytes = int64_t{256} << 20;    // of all values that exist at once, output included
};

/// Thrown and caught in this folder: what is wrong, without the line, which the interpreter knows.
struct Fault {
  std::string message;
};

/// Thrown by a template's raise_exception().
struct Raised {
  std::string message;
};

[[noreturn]] inline void fail(std::string message) { throw Fault{std::move(message)}; }

}  // namespace ferry::jinja
