#include "runtime/text/jinja/json_values.h"

#include <nlohmann/json.hpp>

#include "runtime/text/unicode_text.h"

namespace ferry::jinja {
namespace {

using nlohmann::ordered_json;

Value text_value(const std::string& text, Heap& heap) { return heap.text(is_utf8(text) ? text : repair_utf8(text)); }

/// `room`: how many levels there may be.
Value made(const ordered_json& json, int room, Heap& heap) {
  if (room < 0) fail("values are nested deeper than " + std::to_string(heap.limits().value_depth));
  switch (json.type()) {
    case ordered_json::value_t::string: return text_value(json.get_ref<const std::string&>(), heap);
    case ordered_json::value_t::boolean: return json.get<bool>();
    case ordered_json::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned: return Value::integer(json.get<uint64_t>());
    case ordered_json::value_t::number_float: return json.get<double>();
    case ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const ordered_json& item : json) items.push_back(made(item, room - 1, heap));
      return heap.list(std::move(items));
    }
    case ordered_json::value_t::object: {
      std::vector<Dict::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) entries.emplace_back(text_value(key, heap), made(item, room - 1, heap));
      return heap.dict(std::move(entries));
    }
    default: return None();
  }
}

}  // namespace

Value value_of(const ordered_json& json, Heap& heap) { return made(json, heap.limits().value_depth, heap); }

}  // namespace ferry::jinja
