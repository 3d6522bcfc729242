#include "runtime/text/jinja/arguments.h"

#include <algorithm>

#include "runtime/text/jinja/limits.h"
#include "runtime/text/jinja/numbers.h"

namespace ferry::jinja {

Bound::Bound(const char* function, Arguments& arguments, std::initializer_list<const char*> parameters,
             std::size_t num_required)
    : function_(function), parameters_(parameters), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters_.size()) {
    fail(std::string(function) + "() takes at most " + std::to_string(parameters_.size()) + " arguments, got " +
         std::to_string(arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(parameters_.begin(), parameters_.end(), name);
    if (at == parameters_.end()) fail(std::string(function) + "() has no parameter '" + name + "'");
    const Value*& slot = values_[static_cast<std::size_t>(at - parameters_.begin())];
    if (slot != nullptr) fail(std::string(function) + "() got two values for '" + name + "'");
    slot = &value;
  }
  for (std::size_t i = 0; i < num_required; ++i)
    if (!has(i)) fail(std::string(function) + "() needs the argument '" + parameters_[i] + "'");
}

std::string Bound::where(std::size_t parameter) const {
  return std::string(function_) + "(): '" + parameters_[parameter] + "' is a " + type_name(*values_[parameter]);
}

bool Bound::flag(std::size_t parameter, bool otherwise) const {
  return has(parameter) ? is_true(*values_[parameter]) : otherwise;
}

int64_t Bound::integer(std::size_t parameter, int64_t otherwise) const {
  if (!has(parameter)) return otherwise;
  const Value& value = *values_[parameter];
  if (value.is_undefined()) fail_undefined(value);
  const std::optional<Int> number = value.as_int();
  if (!number) fail(where(parameter) + ", an int is needed");
  return clamp_to_int64(*number);
}

std::string_view Bound::text(std::size_t parameter, std::string_view otherwise) const {
  if (!has(parameter)) return otherwise;
  const Value& value = *values_[parameter];
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_text()) fail(where(parameter) + ", a str is needed");
  return value.text();
}

}  // namespace ferry::jinja
