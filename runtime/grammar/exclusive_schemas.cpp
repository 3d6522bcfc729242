#include "runtime/grammar/exclusive_schemas.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxHops = 8;                  // from reference to reference
constexpr int kMaxCompared = 8;              // schemas within each other
constexpr int64_t kValuesOfComparison = 50;  // that take as long to compare as two schemas

// Types as a set of bits. A number without a fraction is an integer, however it is written.
constexpr unsigned kInteger = 1, kFraction = 2, kString = 4, kBoolean = 8, kNull = 16, kArray = 32, kObject = 64,
                   kAnyType = 127;

unsigned type_bits(std::string_view name) {
  if (name == "integer") return kInteger;
  if (name == "number") return kInteger | kFraction;
  if (name == "string") return kString;
  if (name == "boolean") return kBoolean;
  if (name == "null") return kNull;
  return name == "array" ? kArray : kObject;
}

unsigned type_bits(const ordered_json& value) {
  if (value.is_number()) return std::trunc(value.get<double>()) == value.get<double>() ? kInteger : kFraction;
  return type_bits(std::string_view(value.type_name()));
}

unsigned type_bits(const std::vector<std::string>& names) {
  unsigned bits = 0;
  for (const std::string& name : names) bits |= type_bits(std::string_view(name));
  return names.empty() ? kAnyType : bits;
}

const ordered_json* member(const ordered_json& object, const std::string& key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? nullptr : &*found;
}

using Values = std::span<const ordered_json>;

/// The values of a list; none of what is no list.
Values values_of(const ordered_json& list) {
  return list.is_array() ? Values(list.get_ref<const ordered_json::array_t&>()) : Values();
}

bool contains(Values values, const ordered_json& value) { return std::ranges::find(values, value) != values.end(); }

/// The values that `const` or `enum` name.
std::optional<Values> named_values(const ordered_json& schema) {
  if (const ordered_json* value = member(schema, "const")) return Values(value, 1);
  const ordered_json* values = member(schema, "enum");
  return values != nullptr && values->is_array() ? std::optional(values_of(*values)) : std::nullopt;
}

class Comparison {
 public:
  Comparison(const ordered_json& root, const TypesOfSchema& types_of, int64_t max_comparisons)
      : root_(root), types_of_(types_of), num_left_(max_comparisons * kValuesOfComparison) {}

  /// Whether no value that is written for `written` is valid under `other`.
  bool excludes(const ordered_json& written, const ordered_json& other, int depth = 0) {
    const ordered_json& a = resolved(written);
    const ordered_json& b = resolved(other);
    if (!may_compare(kValuesOfComparison) || depth > kMaxCompared || !a.is_object() || !b.is_object()) return false;
    if (const std::optional<Values> values = named_values(a)) return excludes_values(*values, b);
    for (const char* key : {"anyOf", "oneOf"}) {
      if (const ordered_json* branches = member(a, key))
        return all_of(*branches, [&](const ordered_json& branch) { return excludes(branch, b, depth + 1); });
      if (const ordered_json* branches = member(b, key))
        return all_of(*branches, [&](const ordered_json& branch) { return excludes(a, branch, depth + 1); });
    }
    const unsigned common = type_bits(types_of_(a)) & allowed_types(b);
    return common == 0 || (common == kObject && excludes_object(a, b, depth));
  }

 private:
  /// False when as much as was allowed has been compared.
  bool may_compare(int64_t num_values) { return (num_left_ -= num_values) >= 0; }

  template <class Predicate>
  static bool all_of(const ordered_json& branches, const Predicate& predicate) {
    return branches.is_array() && std::ranges::all_of(branches, predicate);
  }

  /// What a reference, or an allOf of one schema, leads to.
  const ordered_json& resolved(const ordered_json& schema) const {
    const ordered_json* target = &schema;
    for (int i = 0; i < kMaxHops; ++i) {
      const ordered_json* next = referred(*target);
      const ordered_json* whole = member(*target, "allOf");
      if (next == nullptr && whole != nullptr && whole->is_array() && whole->size() == 1) next = &whole->front();
      if (next == nullptr) break;
      target = next;
    }
    return *target;
  }

  const ordered_json* referred(const ordered_json& schema) const {
    const ordered_json* ref = member(schema, "$ref");
    if (ref == nullptr || !ref->is_string()) return nullptr;
    const auto& uri = ref->get_ref<const std::string&>();
    const bool is_plain = (uri == "#" || uri.starts_with("#/")) && uri.find_first_of("~%") == std::string::npos;
    if (!is_plain) return nullptr;
    const ordered_json::json_pointer pointer(uri.substr(1));
    return root_.contains(pointer) ? &root_.at(pointer) : nullptr;
  }

  /// Of a value: a keyword about strings, say, excludes no number.
  unsigned allowed_types(const ordered_json& schema) {
    if (const std::optional<Values> values = named_values(schema)) {
      if (!may_compare(std::ssize(*values))) return kAnyType;
      unsigned bits = 0;
      for (const ordered_json& value : *values) bits |= type_bits(value);
      return bits;
    }
    const ordered_json* type = member(schema, "type");
    if (type == nullptr) return kAnyType;
    const ordered_json names = type->is_array() ? *type : ordered_json::array({*type});
    unsigned bits = 0;
    for (const ordered_json& name : names)
      bits |= name.is_string() ? type_bits(std::string_view(name.get_ref<const std::string&>())) : kAnyType;
    return bits;
  }

  /// Lists and objects are not compared: their own sizes have no bound but the request's.
  bool excludes_values(Values values, const ordered_json& schema) {
    const std::optional<Values> others = named_values(schema);
    const unsigned allowed = allowed_types(schema);
    if (!may_compare(std::ssize(values) * (others ? std::ssize(*others) : 1))) return false;
    return std::ranges::all_of(values, [&](const ordered_json& value) {
      if ((type_bits(value) & allowed) == 0) return true;
      return others && !value.is_structured() && !contains(*others, value);
    });
  }

  /// Of objects: a property that one of them must have keeps them apart.
  bool excludes_object(const ordered_json& written, const ordered_json& other, int depth) {
    const auto keeps_apart = [&](const std::string& key, bool is_written) {
      const ordered_json *a = property(written, key), *b = property(other, key);
      if (a != nullptr && b != nullptr) return excludes(*a, *b, depth + 1);
      if (is_written) return b == nullptr && is_closed(other);
      return a == nullptr && !is_required(written, key) && lists_all(written);
    };
    return any_required(written, [&](const std::string& key) { return keeps_apart(key, true); }) ||
           any_required(other, [&](const std::string& key) { return keeps_apart(key, false); });
  }

  template <class Predicate>
  static bool any_required(const ordered_json& schema, const Predicate& predicate) {
    const ordered_json* required = member(schema, "required");
    return required != nullptr && required->is_array() && std::ranges::any_of(*required, [&](const ordered_json& key) {
             return key.is_string() && predicate(key.get<std::string>());
           });
  }

  static const ordered_json* property(const ordered_json& schema, const std::string& key) {
    const ordered_json* properties = member(schema, "properties");
    return properties == nullptr ? nullptr : member(*properties, key);
  }

  /// Whether the schema allows no properties but those that it lists.
  static bool is_closed(const ordered_json& schema) {
    const ordered_json* additional = member(schema, "additionalProperties");
    return additional != nullptr && *additional == false && !schema.contains("patternProperties");
  }

  /// Whether a grammar writes no others, beside those required: it does not where some are listed, unless it is told to.
  static bool lists_all(const ordered_json& schema) {
    const bool may_add =
        schema.contains("additionalProperties") || schema.contains("patternProperties") || schema.contains("propertyNames");
    return is_closed(schema) || (schema.contains("properties") && !may_add);
  }

  static bool is_required(const ordered_json& schema, const std::string& key) {
    const ordered_json* required = member(schema, "required");
    return required != nullptr && contains(values_of(*required), key);
  }

  const ordered_json& root_;
  const TypesOfSchema& types_of_;
  int64_t num_left_;
};

}  // namespace

bool are_exclusive(const ordered_json& schemas, const ordered_json& root, const TypesOfSchema& types_of,
                   int64_t max_comparisons) {
  Comparison comparison(root, types_of, max_comparisons);
  for (std::size_t i = 0; i < schemas.size(); ++i) {
    for (std::size_t j = 0; j < schemas.size(); ++j) {
      if (i != j && !comparison.excludes(schemas[i], schemas[j])) return false;
    }
  }
  return true;
}

}  // namespace ferry
