#pragma once

#include <functional>
#include <string_view>

#include "runtime/text/jinja/syntax.h"

namespace ferry::jinja {

/// Calls `on_statement` (which may be empty) for every statement of a block and of the blocks within it, macros too, and
/// `on_expression` for every expression.
void walk(const Block& block, const std::function<void(const Statement&)>& on_statement,
          const std::function<void(const Expression&)>& on_expression);

/// Whether a variable of this name is read somewhere in `block`.
bool uses_variable(const Block& block, std::string_view name);

/// Whether there is a loop over something called `name`: a variable, or an attribute or item of anything.
bool loops_over(const Block& block, std::string_view name);

}  // namespace ferry::jinja
