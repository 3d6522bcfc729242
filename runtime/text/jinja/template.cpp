#include "runtime/text/jinja/template.h"

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/lexer.h"
#include "runtime/text/jinja/parser.h"
#include "runtime/text/unicode_text.h"

namespace ferry::jinja {
namespace {

constexpr std::size_t kMessageBytes = 4096;  // of an error, which may name a text of any length

std::string at_line(int line, const std::string& message) {
  return "the chat template, line " + std::to_string(line) + ": " + message;
}

/// Well-formed, with \n for every line break and without one at the end, as jinja2 reads templates.
std::string plain_source(std::string_view text) {
  std::string source;
  source.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      source.push_back(text[i]);
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      source.push_back('\n');
    }
  }
  if (source.ends_with('\n')) source.pop_back();
  return repair_utf8(source);
}

}  // namespace

Template Template::parse(std::string_view text, const Limits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.template_bytes) {
    throw Error(ErrorCode::kUnimplemented, "the chat template has " + std::to_string(text.size()) +
                                               " bytes; allowed: at most " + std::to_string(limits.template_bytes));
  }
  try {
    return Template(parse_template(plain_source(text), limits));
  } catch (const SyntaxFault& fault) {
    throw Error(ErrorCode::kUnimplemented, at_line(fault.line, fault.message));
  }
}

std::string Template::render(const std::function<Variables(Heap&)>& make_variables, const Surroundings& surroundings) const {
  Heap heap(surroundings.limits, surroundings.check_in);
  Interpreter interpreter(heap, surroundings.now);
  try {
    const Variables variables = make_variables(heap);
    const std::shared_ptr<Frame> frame = heap.frame(nullptr);
    for (const auto& [name, value] : variables) frame->set(name, value);
    return interpreter.render(*block_, frame);
  } catch (const Raised& raised) {
    throw Error(ErrorCode::kInvalidArgument, whole_characters(raised.message, kMessageBytes));
  } catch (const Fault& fault) {
    throw Error(ErrorCode::kInvalidArgument, at_line(interpreter.line(), whole_characters(fault.message, kMessageBytes)));
  }
}

}  // namespace ferry::jinja
