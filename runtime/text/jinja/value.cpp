#include "runtime/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/text_parts.h"

namespace ferry::jinja {
namespace {

constexpr std::size_t kNoneHash = 0x6e6f6e65;

std::size_t mix(std::size_t seed, std::size_t value) { return (seed ^ value) * 0x9E3779B97F4A7C15ULL; }

double as_double(const Value& value) {
  if (value.is<double>()) return value.get<double>();
  return static_cast<double>(*value.as_int());
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is<double>() || b.is<double>()) return as_double(a) == as_double(b);
  return *a.as_int() == *b.as_int();
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Heap& heap) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Value& x, const Value& y) { return equal(x, y, heap); });
}

bool equal_sequences(const SequencePtr& a, const SequencePtr& b, Heap& heap) {
  if (a == b) return true;
  return a->form == b->form && a->form != Sequence::Form::kIterator && equal_items(a->items, b->items, heap);
}

bool equal_dicts(const Dict& a, const Dict& b, Heap& heap) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.first, heap);
    return other != nullptr && equal(entry.second, *other, heap);
  });
}

[[noreturn]] void fail_order(const Value& a, const Value& b, const char* op) {
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) fail_undefined(*value);
  fail(std::string("'") + op + "' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) + "'");
}

bool is_ordered_sequence(const Value& value) {
  return value.is<SequencePtr>() &&
         (value.sequence().form == Sequence::Form::kList || value.sequence().form == Sequence::Form::kTuple);
}

}  // namespace

const std::string& Value::text() const { return get<TextPtr>()->bytes; }
const Sequence& Value::sequence() const { return *get<SequencePtr>(); }
const Dict& Value::dict() const { return *get<DictPtr>(); }

std::optional<Int> Value::as_int() const {
  if (is<bool>()) return get<bool>() ? 1 : 0;
  if (is<Int>()) return get<Int>();
  return std::nullopt;
}

const Value* Dict::find(std::string_view key) const {
  if (by_hash.empty()) {
    for (const Entry& entry : entries)
      if (entry.first.is_text() && entry.first.text() == key) return &entry.second;
    return nullptr;
  }
  const std::size_t hash = std::hash<std::string_view>()(key);
  auto it = std::lower_bound(by_hash.begin(), by_hash.end(), std::pair<std::size_t, uint32_t>(hash, 0));
  for (; it != by_hash.end() && it->first == hash; ++it) {
    const Entry& entry = entries[it->second];
    if (entry.first.is_text() && entry.first.text() == key) return &entry.second;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key, Heap& meter) const {
  if (key.is_text()) {
    meter.read(key.text().size());
    return find(std::string_view(key.text()));
  }
  const std::size_t hash = hash_of(key, meter);  // also for few entries: it fails for what cannot be a key
  for (const Entry& entry : entries) {
    meter.work();
    if (hash_of(entry.first, meter) == hash && equal(entry.first, key, meter)) return &entry.second;
  }
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  LookUp look_up(heap, name);
  for (const auto& [key, value] : attributes)
    if (look_up.is_it(key)) return &value;
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  if (name.starts_with('_')) fail("a namespace cannot have the attribute '" + std::string(name) + "', which begins with _");
  LookUp look_up(heap, name);
  for (auto& [key, held] : attributes) {
    if (!look_up.is_it(key)) continue;
    held = std::move(value);
    return;
  }
  const auto entry_bytes = static_cast<int64_t>(2 * (sizeof(attributes.front()) + name.size()));
  heap->hold(entry_bytes);
  num_bytes += entry_bytes;
  attributes.emplace_back(name, std::move(value));
}

Value Object::call(Interpreter& /*interpreter*/, Arguments& /*arguments*/) {
  fail(std::string("'") + type_name() + "' object is not callable");
}

std::optional<Value> Object::attribute(std::string_view /*name*/, Interpreter& /*interpreter*/) { return std::nullopt; }

int depth_of(const Value& value) {
  if (value.is<SequencePtr>()) return value.sequence().depth;
  if (value.is<DictPtr>()) return value.dict().depth;
  if (value.is<ObjectPtr>()) return value.get<ObjectPtr>()->depth;
  return 0;
}

const char* type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is<bool>()) return "bool";
  if (value.is<Int>()) return "int";
  if (value.is<double>()) return "float";
  if (value.is_text()) return value.get<TextPtr>()->is_safe ? "Markup" : "str";
  if (value.is<DictPtr>()) return "dict";
  if (value.is<NamespacePtr>()) return "Namespace";
  if (value.is<ObjectPtr>()) return value.get<ObjectPtr>()->type_name();
  switch (value.sequence().form) {
    case Sequence::Form::kList: return "list";
    case Sequence::Form::kTuple: return "tuple";
    case Sequence::Form::kRange: return "range";
    case Sequence::Form::kView: return value.sequence().label.c_str();
    case Sequence::Form::kIterator: return "generator";
  }
  return "";
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is<double>()) return value.get<double>() != 0;
  if (value.is_text()) return !value.text().empty();
  if (value.is<SequencePtr>()) return value.sequence().form == Sequence::Form::kIterator || !value.sequence().items.empty();
  if (value.is<DictPtr>()) return !value.dict().entries.empty();
  const std::optional<Int> number = value.as_int();
  return !number || *number != 0;
}

bool equal(const Value& a, const Value& b, Heap& heap) {
  heap.work();
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.is_text() && b.is_text()) {
    heap.read(std::min(a.text().size(), b.text().size()));
    return a.text() == b.text();
  }
  if (a.is_undefined() || a.is_none()) return a.is_undefined() == b.is_undefined() && a.is_none() == b.is_none();
  if (a.is<SequencePtr>() && b.is<SequencePtr>()) return equal_sequences(a.get<SequencePtr>(), b.get<SequencePtr>(), heap);
  if (a.is<DictPtr>() && b.is<DictPtr>()) return equal_dicts(a.dict(), b.dict(), heap);
  return same(a, b);
}

bool same(const Value& a, const Value& b) {
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is<bool>() && b.is<bool>()) return a.get<bool>() == b.get<bool>();
  if (a.is<Int>() && b.is<Int>()) return a.get<Int>() == b.get<Int>();
  if (a.is_text() && b.is_text()) return a.get<TextPtr>() == b.get<TextPtr>();
  if (a.is<SequencePtr>() && b.is<SequencePtr>()) return a.get<SequencePtr>() == b.get<SequencePtr>();
  if (a.is<DictPtr>() && b.is<DictPtr>()) return a.get<DictPtr>() == b.get<DictPtr>();
  if (a.is<NamespacePtr>() && b.is<NamespacePtr>()) return a.get<NamespacePtr>() == b.get<NamespacePtr>();
  return a.is<ObjectPtr>() && b.is<ObjectPtr>() && a.get<ObjectPtr>() == b.get<ObjectPtr>();
}

int compare(const Value& a, const Value& b, const char* op, Heap& heap) {
  heap.work();
  if (a.is_number() && b.is_number()) {
    if (equal_numbers(a, b)) return 0;
    if (a.is<double>() || b.is<double>()) return as_double(a) < as_double(b) ? -1 : 1;
    return *a.as_int() < *b.as_int() ? -1 : 1;
  }
  if (a.is_text() && b.is_text()) {
    heap.read(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());  // the order of UTF-8 is that of code points
  }
  if (!is_ordered_sequence(a) || !is_ordered_sequence(b) || a.sequence().form != b.sequence().form) fail_order(a, b, op);
  const std::vector<Value>&x = a.sequence().items, &y = b.sequence().items;
  for (std::size_t i = 0; i < x.size() && i < y.size(); ++i)
    if (!equal(x[i], y[i], heap)) return compare(x[i], y[i], op, heap);
  return x.size() == y.size() ? 0 : x.size() < y.size() ? -1 : 1;
}

std::size_t hash_of(const Value& value, Heap& heap) {
  heap.work();
  if (value.is_text()) {
    heap.read(value.text().size());
    return std::hash<std::string_view>()(value.text());
  }
  if (value.is_number()) return std::hash<double>()(as_double(value));
  if (value.is_none()) return kNoneHash;
  if (value.is<NamespacePtr>()) return std::hash<const void*>()(value.get<NamespacePtr>().get());
  if (value.is<ObjectPtr>()) return std::hash<const void*>()(value.get<ObjectPtr>().get());
  if (value.is<SequencePtr>() && value.sequence().form == Sequence::Form::kTuple) {
    std::size_t hash = value.sequence().items.size();
    for (const Value& item : value.sequence().items) hash = mix(hash, hash_of(item, heap));
    return hash;
  }
  if (value.is_undefined()) return 0;
  fail(std::string("unhashable type: '") + type_name(value) + "'");
}

std::string undefined_message(const Undefined& undefined) {
  const std::string name = undefined.name ? undefined.name->bytes : "";
  if (undefined.is_message) return name;
  if (undefined.of == nullptr) return "'" + name + "' is undefined";
  const std::string owner = std::string(undefined.of) == "NoneType" ? "None" : std::string(undefined.of) + " object";
  return "'" + owner + "' has no attribute '" + name + "'";
}

void fail_undefined(const Value& value) { fail(undefined_message(value.get<Undefined>())); }

int64_t length_of(const Value& value, Heap& heap) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) {
    if (value.get<TextPtr>()->num_code_points < 0) heap.read(value.text().size());
    return num_code_points(*value.get<TextPtr>());
  }
  if (value.is<DictPtr>()) return std::ssize(value.dict().entries);
  if (!value.is<SequencePtr>() || value.sequence().form == Sequence::Form::kIterator)
    fail(std::string("object of type '") + type_name(value) + "' has no len()");
  return std::ssize(value.sequence().items);
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is<SequencePtr>() || value.is<DictPtr>();
}

std::vector<Value> items_of(const Value& value, Heap& heap) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_text()) {
    heap.require(static_cast<std::size_t>(length_of(value, heap)) * (sizeof(Text) + sizeof(Value)));
    for (std::string_view rest = value.text(); !rest.empty(); rest.remove_prefix(character_bytes(rest)))
      items.push_back(heap.text(std::string(rest.substr(0, character_bytes(rest))), value.get<TextPtr>()->is_safe));
    return items;
  }
  if (value.is<DictPtr>()) {
    heap.require(value.dict().entries.size() * sizeof(Value));
    heap.work(std::ssize(value.dict().entries));
    for (const Dict::Entry& entry : value.dict().entries) items.push_back(entry.first);
    return items;
  }
  if (!value.is<SequencePtr>()) fail(std::string("'") + type_name(value) + "' object is not iterable");
  const Sequence& sequence = value.sequence();
  if (sequence.form == Sequence::Form::kIterator && std::exchange(sequence.is_used_up, true)) return items;
  heap.require(sequence.items.size() * sizeof(Value));
  heap.work(std::ssize(sequence.items));
  return sequence.items;
}

}  // namespace ferry::jinja
