#include "runtime/text/jinja/operators.h"

#include <algorithm>

#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/natives.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/printing.h"
#include "runtime/text/jinja/text_parts.h"
#include "runtime/text/text_find.h"

namespace ferry::jinja {
namespace {

using Op = Expression::Op;
using Comparison = Expression::Comparison;
using Form = Sequence::Form;

const char* symbol_of(Op op) {
  switch (op) {
    case Op::kAdd: return "+";
    case Op::kSubtract: return "-";
    case Op::kMultiply: return "*";
    case Op::kDivide: return "/";
    case Op::kFloorDivide: return "//";
    case Op::kModulo: return "%";
    case Op::kPower: return "** or pow()";
  }
  return "";
}

const char* symbol_of(Comparison comparison) {
  switch (comparison) {
    case Comparison::kLess: return "<";
    case Comparison::kLessEqual: return "<=";
    case Comparison::kGreater: return ">";
    case Comparison::kGreaterEqual: return ">=";
    default: return "==";
  }
}

void require_defined(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
}

[[noreturn]] void fail_operands(Op op, const Value& a, const Value& b) {
  fail(std::string("unsupported operand type(s) for ") + symbol_of(op) + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

/// Of two texts. HTML that is safe makes the other one so.
Value joined(const Value& a, const Value& b, Heap& heap) {
  const bool is_safe = a.get<TextPtr>()->is_safe || b.get<TextPtr>()->is_safe;
  heap.require(a.text().size() + b.text().size());
  if (!is_safe) return heap.text(a.text() + b.text());
  const auto escaped = [](const Value& text) { return text.get<TextPtr>()->is_safe ? text.text() : escape_html(text.text()); };
  return heap.text(escaped(a) + escaped(b), true);
}

bool are_sequences(const Value& a, const Value& b, Form form) {
  return a.is<SequencePtr>() && b.is<SequencePtr>() && a.sequence().form == form && b.sequence().form == form;
}

Value add(const Value& a, const Value& b, Heap& heap) {
  if (a.is_number() && b.is_number()) return add_numbers(a, b);
  if (a.is_text() && b.is_text()) return joined(a, b, heap);
  for (const Form form : {Form::kList, Form::kTuple}) {
    if (!are_sequences(a, b, form)) continue;
    heap.require((a.sequence().items.size() + b.sequence().items.size()) * sizeof(Value));
    std::vector<Value> items = a.sequence().items;
    items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
    return heap.sequence(form, std::move(items));
  }
  if (a.is_text()) fail(std::string("can only concatenate str (not \"") + type_name(b) + "\") to str");
  fail_operands(Op::kAdd, a, b);
}

bool is_repeatable(const Value& value) { return value.is_text() || value.is<SequencePtr>(); }

bool is_hashable(const Value& value, Heap& heap) {
  heap.work();
  if (value.is<DictPtr>()) return false;
  if (!value.is<SequencePtr>()) return true;
  const Sequence& sequence = value.sequence();
  return sequence.form == Form::kTuple &&
         std::all_of(sequence.items.begin(), sequence.items.end(), [&](const Value& item) { return is_hashable(item, heap); });
}

/// Of an index that may count from the end; nothing where it is outside.
std::optional<int64_t> place_of(const Value& index, int64_t length) {
  const std::optional<Int> number = index.as_int();
  if (!number) return std::nullopt;
  const Int place = *number < 0 ? *number + length : *number;
  if (place < 0 || place >= length) return std::nullopt;
  return static_cast<int64_t>(place);
}

Value undefined_attribute(const Value& object, const TextPtr& name) {
  return Undefined{.of = type_name(object), .name = name, .is_message = false};
}

Value undefined_item(const Value& object, const Value& key, Heap& heap) {
  if (key.is_text()) return undefined_attribute(object, key.get<TextPtr>());
  return heap.undefined(std::string(type_name(object)) + " object has no element " + repr_of(key, heap));
}

/// A method that is not called yet.
class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, const Native& method) : self_(std::move(self)), method_(method) { depth = depth_of(self_) + 1; }
  std::string printed() const override { return std::string("<method '") + method_.name + "'>"; }
  const char* type_name() const override { return "method"; }
  Value call(Interpreter& interpreter, Arguments& arguments) override { return method_.call(interpreter, self_, arguments); }

 private:
  Value self_;
  const Native& method_;
};

/// What Python has as an attribute of `object`, beside items; nothing where there is none.
std::optional<Value> native_attribute(const Value& object, const TextPtr& name, Interpreter& interpreter) {
  Heap& heap = interpreter.heap();
  if (const Native* method = find_method(object, name->bytes)) {
    if (depth_of(object) >= heap.limits().value_depth) fail("values are nested too deeply");
    return ObjectPtr(heap.object<BoundMethod>(object, *method));
  }
  if (object.is<NamespacePtr>()) {
    const Value* held = object.get<NamespacePtr>()->find(name->bytes);
    return held != nullptr ? std::optional(*held) : std::nullopt;
  }
  if (object.is<ObjectPtr>()) return object.get<ObjectPtr>()->attribute(name->bytes, interpreter);
  if (object.is<SequencePtr>() && object.sequence().is_group) {
    if (name->bytes == "grouper") return object.sequence().items[0];
    if (name->bytes == "list") return object.sequence().items[1];
  }
  if (name->bytes.starts_with("__") || changes_value(object, name->bytes)) {
    return heap.undefined("access to attribute '" + name->bytes + "' of '" + type_name(object) + "' object is unsafe.");
  }
  return std::nullopt;
}

std::optional<Value> indexed(const Value& object, const Value& key, Heap& heap) {
  if (object.is<DictPtr>()) {
    const Value* found = is_hashable(key, heap) ? object.dict().find(key, heap) : nullptr;
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  if (object.is_text()) {
    const std::optional<int64_t> place = place_of(key, length_of(object, heap));
    if (!place) return std::nullopt;
    heap.read(object.text().size());
    return heap.text(take_characters(*object.get<TextPtr>(), *place, 1, 1), object.get<TextPtr>()->is_safe);
  }
  if (!object.is<SequencePtr>()) return std::nullopt;
  const Sequence& sequence = object.sequence();
  if (sequence.form == Form::kView || sequence.form == Form::kIterator) return std::nullopt;
  const std::optional<int64_t> place = place_of(key, std::ssize(sequence.items));
  return place ? std::optional(sequence.items[static_cast<std::size_t>(*place)]) : std::nullopt;
}

/// A part of a slice; `otherwise` where it is left out.
int64_t slice_part(const Value& part, int64_t otherwise) {
  if (part.is_none() || part.is_undefined()) return otherwise;
  const std::optional<Int> number = part.as_int();
  if (!number) fail("slice indices must be integers or None or have an __index__ method");
  return clamp_to_int64(*number);
}

/// Where a slice begins or ends in something of `length` items, as Python's slice.indices() has it.
int64_t slice_place(int64_t place, int64_t length, int64_t step) {
  if (place < 0) place = place < -length ? -1 : place + length;
  if (place < 0) return step < 0 ? -1 : 0;
  return std::min(place, step < 0 ? length - 1 : length);
}

}  // namespace

Value repeat(const Value& value, Int count, Heap& heap) {
  const auto num_times = static_cast<std::size_t>(std::max<int64_t>(clamp_to_int64(count), 0));
  const auto require = [&](std::size_t item_bytes) {
    if (item_bytes > 0 && num_times > static_cast<std::size_t>(heap.limits().held_bytes) / item_bytes)
      heap.require(static_cast<std::size_t>(heap.limits().held_bytes) + 1);
    heap.require(item_bytes * num_times);
  };
  if (value.is_text()) {
    require(value.text().size());
    std::string out;
    if (value.text().empty()) return heap.text("", value.get<TextPtr>()->is_safe);
    out.reserve(value.text().size() * num_times);
    for (std::size_t i = 0; i < num_times; ++i) out += value.text();
    return heap.text(std::move(out), value.get<TextPtr>()->is_safe);
  }
  const Sequence& sequence = value.sequence();
  require(sequence.items.size() * sizeof(Value));
  std::vector<Value> items;
  if (!sequence.items.empty()) {
    for (std::size_t i = 0; i < num_times; ++i) items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return heap.sequence(sequence.form, std::move(items));
}

Value binary(Op op, const Value& a, const Value& b, Heap& heap) {
  require_defined(a);
  if (op == Op::kModulo && a.is_text()) return heap.text(format_percent(a.text(), b, heap), a.get<TextPtr>()->is_safe);
  require_defined(b);
  if (op == Op::kAdd) return add(a, b, heap);
  if (op == Op::kMultiply && is_repeatable(a) && b.as_int()) return repeat(a, *b.as_int(), heap);
  if (op == Op::kMultiply && is_repeatable(b) && a.as_int()) return repeat(b, *a.as_int(), heap);
  if (!a.is_number() || !b.is_number()) fail_operands(op, a, b);
  switch (op) {
    case Op::kSubtract: return subtract_numbers(a, b);
    case Op::kMultiply: return multiply_numbers(a, b);
    case Op::kDivide: return divide_numbers(a, b);
    case Op::kFloorDivide: return floor_divide_numbers(a, b);
    case Op::kModulo: return modulo_numbers(a, b);
    default: return power_numbers(a, b);
  }
}

Value negate(const Value& value) {
  require_defined(value);
  if (!value.is_number()) fail(std::string("bad operand type for unary -: '") + type_name(value) + "'");
  return negate_number(value);
}

Value plus(const Value& value) {
  require_defined(value);
  if (!value.is_number()) fail(std::string("bad operand type for unary +: '") + type_name(value) + "'");
  return value.is<bool>() ? Value::integer(*value.as_int()) : value;
}

bool contains(const Value& container, const Value& item, Heap& heap) {
  if (container.is_text()) {
    if (item.is_undefined()) fail("'in <string>' requires string as left operand, not Undefined");
    if (!item.is_text()) fail(std::string("'in <string>' requires string as left operand, not ") + type_name(item));
    heap.read(container.text().size() + item.text().size());
    return find_text(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is<DictPtr>()) return container.dict().find(item, heap) != nullptr;
  if (container.is_undefined()) return false;
  if (!container.is<SequencePtr>()) fail(std::string("argument of type '") + type_name(container) + "' is not iterable");
  const Sequence& sequence = container.sequence();
  if (sequence.form == Form::kIterator && std::exchange(sequence.is_used_up, true)) return false;
  return std::any_of(sequence.items.begin(), sequence.items.end(), [&](const Value& each) { return equal(each, item, heap); });
}

bool holds(Comparison comparison, const Value& a, const Value& b, Heap& heap) {
  switch (comparison) {
    case Comparison::kEqual: return equal(a, b, heap);
    case Comparison::kNotEqual: return !equal(a, b, heap);
    case Comparison::kIn: return contains(b, a, heap);
    case Comparison::kNotIn: return !contains(b, a, heap);
    default: break;
  }
  const bool is_nan =
      (a.is<double>() && a.get<double>() != a.get<double>()) || (b.is<double>() && b.get<double>() != b.get<double>());
  const int order = compare(a, b, symbol_of(comparison), heap);
  if (is_nan) return false;
  if (comparison == Comparison::kLess) return order < 0;
  if (comparison == Comparison::kLessEqual) return order <= 0;
  return comparison == Comparison::kGreater ? order > 0 : order >= 0;
}

Value attribute_of(const Value& object, const TextPtr& name, Interpreter& interpreter) {
  require_defined(object);
  interpreter.heap().work(static_cast<int64_t>(name->bytes.size() >> 5));
  if (std::optional<Value> found = native_attribute(object, name, interpreter)) return *std::move(found);
  if (object.is<DictPtr>()) {
    if (const Value* found = object.dict().find(name->bytes)) return *found;
  }
  return undefined_attribute(object, name);
}

Value item_of(const Value& object, const Value& key, Interpreter& interpreter) {
  require_defined(object);
  if (std::optional<Value> found = indexed(object, key, interpreter.heap())) return *std::move(found);
  if (key.is_text()) {
    if (std::optional<Value> found = native_attribute(object, key.get<TextPtr>(), interpreter)) return *std::move(found);
  }
  return undefined_item(object, key, interpreter.heap());
}

Value slice_of(const Value& object, const Value& start, const Value& stop, const Value& step, Heap& heap) {
  require_defined(object);
  const bool is_sliceable = object.is_text() || (object.is<SequencePtr>() && object.sequence().form != Form::kView &&
                                                 object.sequence().form != Form::kIterator);
  if (!is_sliceable) fail(std::string("'") + type_name(object) + "' object is not subscriptable by a slice");
  const int64_t stride = slice_part(step, 1);
  if (stride == 0) fail("slice step cannot be zero");
  const int64_t length = length_of(object, heap);
  const int64_t begin = slice_place(slice_part(start, stride < 0 ? INT64_MAX : 0), length, stride);
  const bool has_stop = !stop.is_none() && !stop.is_undefined();
  const int64_t end = has_stop ? slice_place(slice_part(stop, 0), length, stride) : stride < 0 ? -1 : length;
  const int64_t span = stride < 0 ? begin - end : end - begin;
  const uint64_t stride_size = stride < 0 ? uint64_t{0} - static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
  const int64_t count = span <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride_size + 1);
  const int64_t pace = count > 1 ? stride : 1;  // a stride that is never taken may be huge
  if (object.is_text()) {
    heap.read(object.text().size());
    return heap.text(take_characters(*object.get<TextPtr>(), begin, count, pace), object.get<TextPtr>()->is_safe);
  }
  const Sequence& sequence = object.sequence();
  heap.require(static_cast<std::size_t>(count) * sizeof(Value));
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i) items.push_back(sequence.items[static_cast<std::size_t>(begin + i * pace)]);
  return heap.sequence(sequence.form == Form::kTuple ? Form::kTuple : Form::kList, std::move(items));
}

}  // namespace ferry::jinja
