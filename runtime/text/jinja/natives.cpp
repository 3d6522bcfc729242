#include "runtime/text/jinja/natives.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/printing.h"

// Functions, and the methods of dicts and lists.

namespace ferry::jinja {
namespace {

using Form = Sequence::Form;

// Bytes of arguments for each step. Many natives look at them character by character, which takes longer than a copy.
constexpr std::size_t kBytesPerStep = 4;

const Native* find_in(std::span<const Native> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Native& native) { return native.name == name; });
  return found != table.end() ? &*found : nullptr;
}

// --- methods of dicts ---

Value dict_get(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* found = self.dict().find(bound[0], interpreter.heap());
  return found != nullptr ? *found : bound.value(1, None());
}

Value dict_items(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("items", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) items.push_back(interpreter.heap().tuple({key, value}));
  return interpreter.heap().sequence(Form::kView, std::move(items), "dict_items");
}

Value dict_keys(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("keys", arguments, {});
  return interpreter.heap().sequence(Form::kView, items_of(self, interpreter.heap()), "dict_keys");
}

Value dict_values(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("values", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) items.push_back(value);
  return interpreter.heap().sequence(Form::kView, std::move(items), "dict_values");
}

Value copied(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  return self;  // nothing changes either
}

// --- methods of lists and tuples ---

Value sequence_index(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("index", arguments, {"value", "start", "stop"}, 1);
  const std::vector<Value>& items = self.sequence().items;
  const auto place = [&](std::size_t parameter, int64_t otherwise) {
    const int64_t given = bound.integer(parameter, otherwise);
    return given < 0 ? std::max<int64_t>(given < -std::ssize(items) ? 0 : given + std::ssize(items), 0) : given;
  };
  const int64_t end = std::min(place(2, std::ssize(items)), std::ssize(items));
  for (int64_t i = place(1, 0); i < end; ++i)
    if (equal(items[static_cast<std::size_t>(i)], bound[0], interpreter.heap())) return Value::integer(i);
  fail(repr_of(bound[0], interpreter.heap()) + " is not in the sequence");
}

Value sequence_count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  Int num_found = 0;
  for (const Value& item : self.sequence().items) num_found += equal(item, bound[0], interpreter.heap()) ? 1 : 0;
  return Value::integer(num_found);
}

constexpr std::array<Native, 5> kDictMethods = {{{"copy", copied, Reads::kNothing},
                                                 {"get", dict_get},
                                                 {"items", dict_items},
                                                 {"keys", dict_keys},
                                                 {"values", dict_values}}};
constexpr std::array<Native, 3> kListMethods = {
    {{"copy", copied, Reads::kNothing}, {"count", sequence_count}, {"index", sequence_index}}};

// --- functions ---

Value range(Interpreter& interpreter, const Value& /*self*/, Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool has_stop = bound.has(1);
  const int64_t start = has_stop ? bound.integer(0, 0) : 0;
  const int64_t stop = bound.integer(has_stop ? 1 : 0, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  const Int span = step > 0 ? Int{stop} - start : Int{start} - stop;
  const Int stride = step > 0 ? Int{step} : -Int{step};
  const Int count = span <= 0 ? Int{0} : (span - 1) / stride + 1;
  Heap& heap = interpreter.heap();
  if (count > heap.limits().range_items)
    fail("Range too big: more than " + std::to_string(heap.limits().range_items) + " items");
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(count));
  for (Int i = 0; i < count; ++i) items.push_back(Value::integer(start + i * step));
  std::string label = "range(" + std::to_string(start) + ", " + std::to_string(stop);
  if (step != 1) label += ", " + std::to_string(step);
  return heap.sequence(Form::kRange, std::move(items), label + ")");
}

std::vector<Dict::Entry> entries_of(const char* function, Arguments& arguments, Heap& heap) {
  std::vector<Dict::Entry> entries;
  if (arguments.positional.size() > 1) fail(std::string(function) + "() takes at most 1 argument");
  if (!arguments.positional.empty() && arguments.positional[0].is<DictPtr>()) {
    entries = arguments.positional[0].dict().entries;
  } else if (!arguments.positional.empty()) {
    for (const Value& pair : items_of(arguments.positional[0], heap)) {
      std::vector<Value> parts = items_of(pair, heap);
      if (parts.size() != 2) fail(std::string(function) + "() needs pairs of keys and values");
      entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
    }
  }
  for (auto& [name, value] : arguments.named) entries.emplace_back(heap.text(name), std::move(value));
  return entries;
}

Value dict(Interpreter& interpreter, const Value& /*self*/, Arguments& arguments) {
  return interpreter.heap().dict(entries_of("dict", arguments, interpreter.heap()));
}

Value name_space(Interpreter& interpreter, const Value& /*self*/, Arguments& arguments) {
  std::vector<std::pair<std::string, Value>> attributes;
  for (auto& [name, value] : entries_of("namespace", arguments, interpreter.heap())) {
    if (!name.is_text()) fail("attributes of a namespace must be str");
    attributes.emplace_back(name.text(), std::move(value));
  }
  return interpreter.heap().name_space(std::move(attributes));
}

Value raise_exception(Interpreter& interpreter, const Value& /*self*/, Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw Raised{text_of(bound[0], interpreter.heap())};
}

Value strftime_now(Interpreter& interpreter, const Value& /*self*/, Arguments& arguments) {
  constexpr std::size_t kFormatMax = 256, kTextMax = 4096;  // bytes
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const std::string format(bound.text(0, ""));
  if (format.size() > kFormatMax) fail("strftime_now: a format of more than " + std::to_string(kFormatMax) + " bytes");
  if (format.find_first_of("0123456789") != std::string::npos) {
    for (std::size_t at = format.find('%'); at + 1 < format.size(); at = format.find('%', at + 2))  // glibc's widths
      if (format.find_first_of("0123456789", at) == at + 1) fail("strftime_now: a width in a format");
  }
  const std::time_t now = interpreter.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, kTextMax> text{};
  const std::size_t num_bytes = std::strftime(text.data(), text.size(), format.c_str(), &local);
  return interpreter.heap().text(std::string(text.data(), num_bytes));
}

/// What cycler() makes.
class Cycler final : public Object {
 public:
  explicit Cycler(Value items) : items_(std::move(items)) { depth = depth_of(items_) + 1; }
  std::string printed() const override { return "<Cycler>"; }
  const char* type_name() const override { return "Cycler"; }
  bool is_callable() const override { return false; }
  std::optional<Value> attribute(std::string_view name, Interpreter& interpreter) override;
  Value next() { return items_.sequence().items[std::exchange(index_, (index_ + 1) % items_.sequence().items.size())]; }
  void reset() { index_ = 0; }

 private:
  Value items_;
  std::size_t index_ = 0;
};

class CyclerMethod final : public Object {
 public:
  CyclerMethod(std::shared_ptr<Cycler> cycler, bool resets) : cycler_(std::move(cycler)), resets_(resets) {
    depth = cycler_->depth + 1;
  }
  std::string printed() const override { return "<bound method of Cycler>"; }
  const char* type_name() const override { return "method"; }
  Value call(Interpreter& /*interpreter*/, Arguments& arguments) override {
    const Bound bound("next", arguments, {});
    if (!resets_) return cycler_->next();
    cycler_->reset();
    return None();
  }

 private:
  std::shared_ptr<Cycler> cycler_;
  bool resets_;
};

std::optional<Value> Cycler::attribute(std::string_view name, Interpreter& interpreter) {
  if (name == "current") return items_.sequence().items[index_];
  if (name != "next" && name != "reset") return std::nullopt;
  auto self = std::static_pointer_cast<Cycler>(shared_from_this());
  return ObjectPtr(interpreter.heap().object<CyclerMethod>(std::move(self), name == "reset"));
}

Value cycler(Interpreter& interpreter, const Value& /*self*/, Arguments& arguments) {
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  if (!arguments.named.empty()) fail("cycler() takes no keyword arguments");
  return ObjectPtr(interpreter.heap().object<Cycler>(interpreter.heap().tuple(std::move(arguments.positional))));
}

/// What joiner() makes: a separator, but not the first time.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) { depth = depth_of(separator_) + 1; }
  std::string printed() const override { return "<Joiner>"; }
  const char* type_name() const override { return "Joiner"; }
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    const Bound bound("joiner", arguments, {});
    return std::exchange(is_used_, true) ? separator_ : interpreter.heap().text("");
  }

 private:
  Value separator_;
  bool is_used_ = false;
};

Value joiner(Interpreter& interpreter, const Value& /*self*/, Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  return ObjectPtr(interpreter.heap().object<Joiner>(bound.has(0) ? bound[0] : interpreter.heap().text(", ")));
}

constexpr std::array<Native, 7> kFunctions = {{
    {"cycler", cycler},
    {"dict", dict},
    {"joiner", joiner},
    {"namespace", name_space},
    {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now},
}};

}  // namespace

Value Native::call(Interpreter& interpreter, const Value& self, Arguments& arguments) const {
  std::size_t num_bytes = (arguments.positional.size() + arguments.named.size()) * sizeof(Value);
  if (reads_ == Reads::kText) {
    const auto add = [&](const Value& value) { num_bytes += value.is_text() ? value.text().size() : 0; };
    add(self);
    for (const Value& value : arguments.positional) add(value);
    for (const auto& [name_given, value] : arguments.named) add(value);
  }
  interpreter.heap().work(static_cast<int64_t>(num_bytes / kBytesPerStep));
  return run_(interpreter, self, arguments);
}

const Native* find_filter(std::string_view name) {
  for (const std::span<const Native> table : {text_filters(), sequence_filters(), value_filters()})
    if (const Native* found = find_in(table, name)) return found;
  return nullptr;
}

const Native* find_function(std::string_view name) { return find_in(kFunctions, name); }

const Native* find_method(const Value& self, std::string_view name) {
  if (self.is_text()) return find_in(text_methods(), name);
  if (self.is<DictPtr>()) return find_in(kDictMethods, name);
  if (!self.is<SequencePtr>()) return nullptr;
  switch (self.sequence().form) {
    case Form::kList: return find_in(kListMethods, name);
    case Form::kTuple:
    case Form::kRange: return find_in(std::span(kListMethods).last(2), name);
    default: return nullptr;
  }
}

bool changes_value(const Value& self, std::string_view name) {
  constexpr std::array<std::string_view, 9> kOfLists = {"append", "clear",   "extend", "insert",     "pop",
                                                        "remove", "reverse", "sort",   "__setitem__"};
  constexpr std::array<std::string_view, 5> kOfDicts = {"clear", "pop", "popitem", "setdefault", "update"};
  if (self.is<DictPtr>()) return std::find(kOfDicts.begin(), kOfDicts.end(), name) != kOfDicts.end();
  const bool is_list = self.is<SequencePtr>() && self.sequence().form == Form::kList;
  return is_list && std::find(kOfLists.begin(), kOfLists.end(), name) != kOfLists.end();
}

}  // namespace ferry::jinja
