#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace ferry::jinja {

struct Token {
  enum class Kind {
    kData,         // text between the tags, without the white space that they take away
    kOutputBegin,  // {{
    kOutputEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,  // text: without quotes, escapes replaced
    kInteger,
    kFloat,
    kOperator,  // text
    kEnd,       // of the template
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;
  Int integer = 0;
  double number = 0;
};

/// A template in pieces, with jinja2's trim_blocks and lstrip_blocks: a block takes the line break behind it and the blanks
/// before it on its line. Comments are left out. `source` is well-formed UTF-8 with \n for line breaks. Throws SyntaxFault.
std::vector<Token> tokenize(std::string_view source);

/// Thrown and caught in this folder: the template cannot be understood.
struct SyntaxFault {
  std::string message;
  int line = 0;
};

}  // namespace ferry::jinja
