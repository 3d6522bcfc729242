#include <algorithm>
#include <array>
#include <numeric>

#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/natives.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/printing.h"
#include "runtime/text/jinja/text_parts.h"
#include "runtime/text/jinja/text_search.h"
#include "runtime/text/unicode_case.h"

// Filters over lists and dicts (jinja2/filters.py of 3.1).

namespace ferry::jinja {
namespace {

using Form = Sequence::Form;

/// Looks an attribute of items up: "a.b.0" is item 0 of the attribute b of the attribute a.
class AttributePath {
 public:
  AttributePath(const Value& path, Heap& heap) {
    if (path.is_none() || path.is_undefined()) return;
    if (!path.is_text()) {
      parts_.push_back(path);
      return;
    }
    for (const std::string_view part : split_at(path.text(), ".", INT64_MAX, Ends::kLeft, heap)) {
      const bool is_index = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(is_index ? Value::integer(std::stoll(std::string(part))) : heap.text(std::string(part)));
    }
  }

  /// `otherwise`, if it is not null, stands for what is undefined on the way.
  Value of(Value item, Interpreter& interpreter, const Value* otherwise = nullptr) const {
    for (const Value& part : parts_) {
      item = item_of(item, part, interpreter);
      if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
};

/// Text in lower case, and anything else as it is.
Value without_case(const Value& value, Heap& heap) {
  if (!value.is_text()) return value;
  heap.read(value.text().size());
  return heap.text(to_lower(value.text()));
}

/// What items are sorted and told apart by.
Value key_of(const Value& item, const AttributePath& path, bool is_case_sensitive, Interpreter& interpreter,
             const Value* otherwise = nullptr) {
  Value key = path.of(item, interpreter, otherwise);
  return is_case_sensitive ? key : without_case(key, interpreter.heap());
}

/// The order of `keys`, which equal ones keep.
std::vector<std::size_t> order_of(const std::vector<Value>& keys, bool is_reversed, Heap& heap) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return is_reversed ? compare(keys[b], keys[a], "<", heap) < 0 : compare(keys[a], keys[b], "<", heap) < 0;
  });
  return order;
}

Value first(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("first", arguments, {});
  if (self.is_text() && !self.text().empty()) return item_of(self, Value::integer(0), interpreter);
  const std::vector<Value> items = items_of(self, interpreter.heap());
  return items.empty() ? interpreter.heap().undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("last", arguments, {});
  if (self.is<SequencePtr>() && self.sequence().form == Form::kIterator) fail("'generator' object is not reversible");
  if (self.is_text() && !self.text().empty()) return item_of(self, Value::integer(-1), interpreter);
  const std::vector<Value> items = items_of(self, interpreter.heap());
  return items.empty() ? interpreter.heap().undefined("No last item, sequence was empty.") : items.back();
}

Value list(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return interpreter.heap().list(items_of(self, interpreter.heap()));
}

Value items(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("items", arguments, {});
  Heap& heap = interpreter.heap();
  if (self.is_undefined()) return heap.iterator({});
  if (!self.is<DictPtr>()) fail("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict().entries) pairs.push_back(heap.tuple({key, value}));
  return heap.iterator(std::move(pairs));
}

Value join_filter(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  Heap& heap = interpreter.heap();
  const std::string separator = bound.has(0) ? text_of(bound[0], heap) : "";
  const AttributePath path(bound.value(1, None()), heap);
  std::string out;
  bool is_first = true;
  for (const Value& item : items_of(self, heap)) {
    if (!std::exchange(is_first, false)) out += separator;
    heap.read(separator.size());
    append_text(path.of(item, interpreter), out, heap);
  }
  return heap.text(std::move(out));
}

Value reverse(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  Heap& heap = interpreter.heap();
  if (self.is_text()) return slice_of(self, None(), None(), Value::integer(-1), heap);
  std::vector<Value> all = items_of(self, heap);
  std::reverse(all.begin(), all.end());
  const bool is_list = self.is<SequencePtr>() && self.sequence().form == Form::kIterator;
  return is_list ? heap.list(std::move(all)) : heap.sequence(Form::kIterator, std::move(all), "reversed object");
}

Value sort(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  Heap& heap = interpreter.heap();
  std::vector<AttributePath> paths;
  if (bound.has_value(2) && bound[2].is_text()) {
    for (const std::string_view part : split_at(bound[2].text(), ",", INT64_MAX, Ends::kLeft, heap))
      paths.emplace_back(heap.text(std::string(part)), heap);
  } else {
    paths.emplace_back(bound.value(2, None()), heap);
  }
  const std::vector<Value> all = items_of(self, heap);
  std::vector<Value> keys;
  for (const Value& item : all) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) parts.push_back(key_of(item, path, bound.flag(1, false), interpreter));
    keys.push_back(heap.list(std::move(parts)));
  }
  std::vector<Value> sorted;
  for (const std::size_t place : order_of(keys, bound.flag(0, false), heap)) sorted.push_back(all[place]);
  return heap.list(std::move(sorted));
}

Value dict_sort(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  Heap& heap = interpreter.heap();
  const std::string_view by = bound.text(1, "key");
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (self.is_undefined()) fail_undefined(self);
  if (!self.is<DictPtr>()) fail(std::string("'") + type_name(self) + "' object has no attribute 'items'");
  const std::vector<Dict::Entry>& entries = self.dict().entries;
  std::vector<Value> keys;
  for (const auto& [key, value] : entries) {
    const Value& chosen = by == "key" ? key : value;
    keys.push_back(bound.flag(0, false) ? chosen : without_case(chosen, heap));
  }
  std::vector<Value> sorted;
  for (const std::size_t place : order_of(keys, bound.flag(2, false), heap))
    sorted.push_back(heap.tuple({entries[place].first, entries[place].second}));
  return heap.list(std::move(sorted));
}

/// Which of `keys` are the first of their kind.
std::vector<bool> first_of_kind(const std::vector<Value>& keys, Heap& heap) {
  std::vector<std::pair<std::size_t, std::size_t>> order;  // hash, place
  for (std::size_t i = 0; i < keys.size(); ++i) order.emplace_back(hash_of(keys[i], heap), i);
  std::sort(order.begin(), order.end());
  std::vector<bool> is_first(keys.size(), false);
  std::vector<std::size_t> kinds;  // places of those with the hash of the last one that are the first of their kind
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && order[i - 1].first != order[i].first) kinds.clear();
    const std::size_t place = order[i].second;
    is_first[place] =
        std::none_of(kinds.begin(), kinds.end(), [&](std::size_t before) { return equal(keys[before], keys[place], heap); });
    if (is_first[place]) kinds.push_back(place);
  }
  return is_first;
}

Value unique(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Heap& heap = interpreter.heap();
  const AttributePath path(bound.value(1, None()), heap);
  std::vector<Value> all = items_of(self, heap), keys, chosen;
  for (const Value& item : all) keys.push_back(key_of(item, path, bound.flag(0, false), interpreter));
  const std::vector<bool> is_first = first_of_kind(keys, heap);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (is_first[i]) chosen.push_back(std::move(all[i]));
  return heap.iterator(std::move(chosen));
}

Value extreme(const char* name, int wanted, Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound(name, arguments, {"case_sensitive", "attribute"});
  Heap& heap = interpreter.heap();
  const AttributePath path(bound.value(1, None()), heap);
  Value best, best_key;
  bool has_one = false;
  for (const Value& item : items_of(self, heap)) {
    Value key = key_of(item, path, bound.flag(0, false), interpreter);
    if (has_one && compare(key, best_key, wanted < 0 ? "<" : ">", heap) * wanted <= 0) continue;
    has_one = true;
    best = item;
    best_key = std::move(key);
  }
  return has_one ? best : heap.undefined("No aggregated item, sequence was empty.");
}

Value min(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return extreme("min", -1, interpreter, self, arguments);
}
Value max(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return extreme("max", 1, interpreter, self, arguments);
}

Value sum(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Heap& heap = interpreter.heap();
  const AttributePath path(bound.value(0, None()), heap);
  Value total = bound.value(1, Value::integer(0));
  if (total.is_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items_of(self, heap)) total = binary(Expression::Op::kAdd, total, path.of(item, interpreter), heap);
  return total;
}

Value batch(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  Heap& heap = interpreter.heap();
  const int64_t size = bound.integer(0, 0);
  std::vector<Value> rows, row;
  for (const Value& item : items_of(self, heap)) {
    if (std::ssize(row) == size) rows.push_back(heap.list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (row.empty()) return heap.iterator(std::move(rows));
  if (bound.has_value(1) && std::ssize(row) < size) {
    heap.require(static_cast<std::size_t>(std::min(size, heap.limits().held_bytes + 1)) * sizeof(Value));
    row.resize(static_cast<std::size_t>(size), bound[1]);
  }
  rows.push_back(heap.list(std::move(row)));
  return heap.iterator(std::move(rows));
}

Value slice(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  Heap& heap = interpreter.heap();
  const int64_t num_slices = bound.integer(0, 0);
  const std::vector<Value> all = items_of(self, heap);
  if (num_slices == 0) fail("integer division or modulo by zero");
  heap.require(static_cast<std::size_t>(std::clamp<int64_t>(num_slices, 0, heap.limits().held_bytes)) * sizeof(Sequence));
  std::vector<Value> slices;
  auto at = all.begin();
  for (int64_t i = 0; i < num_slices; ++i) {
    const bool has_extra = i < std::ssize(all) % num_slices;
    const auto end = at + std::ssize(all) / num_slices + (has_extra ? 1 : 0);
    std::vector<Value> part(at, end);
    if (bound.has_value(1) && !has_extra) part.push_back(bound[1]);
    slices.push_back(heap.list(std::move(part)));
    at = end;
  }
  return heap.iterator(std::move(slices));
}

Value group_by(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  Heap& heap = interpreter.heap();
  const AttributePath path(bound[0], heap);
  const Value* otherwise = bound.has_value(1) ? &bound[1] : nullptr;
  const std::vector<Value> all = items_of(self, heap);
  std::vector<Value> keys, groups;
  for (const Value& item : all) keys.push_back(key_of(item, path, bound.flag(2, false), interpreter, otherwise));
  const std::vector<std::size_t> order = order_of(keys, false, heap);
  for (std::size_t i = 0; i < order.size();) {
    std::vector<Value> members;
    const std::size_t begin = i;
    for (; i < order.size() && equal(keys[order[begin]], keys[order[i]], heap); ++i) members.push_back(all[order[i]]);
    if (i == begin) fail("groupby: a key does not equal itself");
    Value grouper = path.of(members.front(), interpreter, otherwise);
    groups.push_back(heap.group(std::move(grouper), heap.list(std::move(members))));
  }
  return heap.list(std::move(groups));
}

/// The filter's own arguments without the first `num_taken` positional ones: those of the filter or test that it applies.
Arguments rest_of(const Arguments& arguments, std::size_t num_taken) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(num_taken));
  return rest;
}

std::string name_of(const Value& value, const char* filter) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_text()) fail(std::string(filter) + ": a name is needed, not " + type_name(value));
  return value.text();
}

Value map(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Heap& heap = interpreter.heap();
  if (!is_true(self)) return heap.iterator({});
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    const AttributePath path(bound[0], heap);
    const Value* otherwise = bound.has_value(1) ? &bound[1] : nullptr;
    for (const Value& item : items_of(self, heap)) mapped.push_back(path.of(item, interpreter, otherwise));
    return heap.iterator(std::move(mapped));
  }
  const std::string name = name_of(arguments.positional.front(), "map");
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : items_of(self, heap)) {
    Arguments own = rest;
    mapped.push_back(interpreter.filter(name, item, own));
  }
  return heap.iterator(std::move(mapped));
}

Value chosen(const char* filter, bool wanted, bool looks_up, Interpreter& interpreter, const Value& self,
             Arguments& arguments) {
  Heap& heap = interpreter.heap();
  if (!is_true(self)) return heap.iterator({});
  const std::size_t num_paths = looks_up ? 1 : 0;
  if (arguments.positional.size() < num_paths) fail("Missing parameter for attribute name");
  const AttributePath path(looks_up ? arguments.positional.front() : Value(None()), heap);
  const bool has_test = arguments.positional.size() > num_paths;
  const std::string test = has_test ? name_of(arguments.positional[num_paths], filter) : "";
  const Arguments rest = rest_of(arguments, num_paths + (has_test ? 1 : 0));
  std::vector<Value> found;
  for (const Value& item : items_of(self, heap)) {
    heap.work();
    const Value value = path.of(item, interpreter);
    Arguments own = rest;
    if ((has_test ? interpreter.test(test, value, own) : is_true(value)) == wanted) found.push_back(item);
  }
  return heap.iterator(std::move(found));
}

Value select(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return chosen("select", true, false, interpreter, self, arguments);
}
Value reject(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return chosen("reject", false, false, interpreter, self, arguments);
}
Value select_attribute(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return chosen("selectattr", true, true, interpreter, self, arguments);
}
Value reject_attribute(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return chosen("rejectattr", false, true, interpreter, self, arguments);
}

constexpr std::array<Native, 20> kSequenceFilters = {{
    {"batch", batch},     {"dictsort", dict_sort},
    {"first", first},     {"groupby", group_by},
    {"items", items},     {"join", join_filter},
    {"last", last},       {"list", list},
    {"map", map},         {"max", max},
    {"min", min},         {"reject", reject},
    {"reverse", reverse}, {"rejectattr", reject_attribute},
    {"select", select},   {"selectattr", select_attribute},
    {"slice", slice},     {"sort", sort},
    {"sum", sum},         {"unique", unique},
}};

}  // namespace

std::span<const Native> sequence_filters() { return kSequenceFilters; }

}  // namespace ferry::jinja
