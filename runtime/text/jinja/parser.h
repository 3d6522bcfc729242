#pragma once

#include <string_view>

#include "runtime/text/jinja/limits.h"
#include "runtime/text/jinja/syntax.h"

namespace ferry::jinja {

/// Reads a template: `source` as tokenize() takes it. Throws SyntaxFault.
Block parse_template(std::string_view source, const Limits& limits);

}  // namespace ferry::jinja
