#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/limits.h"
#include "runtime/text/jinja/syntax.h"

namespace ferry::jinja {

/// A chat template in Jinja, with jinja2 3.1's meaning as transformers sets it up for chat templates (README.md). Any thread
/// may render it.
///
///   const Template greeting = Template::parse("Hello {{ name | upper }}!");
///   greeting.render([](Heap& heap) { return Variables{{"name", heap.text("you")}}; });
class Template {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;

  /// What a rendering may be told beside its variables.
  struct Surroundings {
    std::time_t now = std::time(nullptr);  // for strftime_now()
    std::function<void()> check_in = {};   // called now and then; what it throws ends the rendering
    Limits limits = {};
  };

  /// Throws Error{kUnimplemented} for a template that cannot be understood or is beyond the limits, with its line.
  static Template parse(std::string_view text, const Limits& limits = {});

  /// `make_variables` makes the variables out of the heap that it is given. Throws Error{kInvalidArgument}: with the text of
  /// the template's own raise_exception(), or with what went wrong and in which line.
  std::string render(const std::function<Variables(Heap&)>& make_variables, const Surroundings& surroundings) const;

  const Block& block() const { return *block_; }

 private:
  explicit Template(Block block) : block_(std::make_shared<const Block>(std::move(block))) {}

  std::shared_ptr<const Block> block_;  // shared by copies: it does not change
};

}  // namespace ferry::jinja
