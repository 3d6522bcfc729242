#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace ferry::jinja {

/// What a function, a filter, a test or a macro is called with.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// The arguments of a function by the names of its parameters.
class Bound {
 public:
  /// Fails for arguments that no parameter takes, and unless the first `num_required` parameters have one.
  Bound(const char* function, Arguments& arguments, std::initializer_list<const char*> parameters,
        std::size_t num_required = 0);

  bool has(std::size_t parameter) const { return values_[parameter] != nullptr; }
  const Value& operator[](std::size_t parameter) const { return *values_[parameter]; }
  /// The argument, or `otherwise` where there is none.
  Value value(std::size_t parameter, Value otherwise) const {
    return has(parameter) ? *values_[parameter] : std::move(otherwise);
  }
  bool flag(std::size_t parameter, bool otherwise) const;
  /// Fail for values of another type.
  int64_t integer(std::size_t parameter, int64_t otherwise) const;
  /// As long as the arguments.
  std::string_view text(std::size_t parameter, std::string_view otherwise) const;
  /// None counts as absent.
  bool has_value(std::size_t parameter) const { return has(parameter) && !values_[parameter]->is_none(); }

 private:
  std::string where(std::size_t parameter) const;

  const char* function_;
  std::vector<const char*> parameters_;
  std::vector<const Value*> values_;
};

}  // namespace ferry::jinja
