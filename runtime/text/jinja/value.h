#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

// The values that templates compute with. They are Python's, as jinja2 shows them: immutable but for namespaces, iterators and
// the objects behind `loop`, `cycler` and `joiner`.

namespace ferry::jinja {

__extension__ typedef unsigned __int128 UnsignedInt;
__extension__ typedef __int128 Int;  // Python's have no bound; these have that of kIntMax

class Heap;
class Value;
struct Arguments;
class Interpreter;

/// Counted by the heap that made it; a part of a template's text has none.
struct Held {
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  virtual ~Held();
  Heap* heap = nullptr;
  int64_t num_bytes = 0;  // that the heap counts
};

/// A string.
struct Text final : Held {
  std::string bytes;                     // UTF-8
  mutable int64_t num_code_points = -1;  // not yet counted
  bool is_safe = false;                  // Python's Markup: HTML that is not to be escaped again
};
using TextPtr = std::shared_ptr<const Text>;

struct Undefined {
  const char* of = nullptr;  // the type of object that has no such attribute; null: a variable
  TextPtr name;              // of the variable or attribute; a whole message where `is_message`
  bool is_message = false;
};
struct None {};

struct Sequence;
struct Dict;
struct Namespace;
class Object;
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using NamespacePtr = std::shared_ptr<Namespace>;
using ObjectPtr = std::shared_ptr<Object>;

template <class T, class... Ts>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Ts> || ...);

class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, Int, double, TextPtr, SequencePtr, DictPtr, NamespacePtr, ObjectPtr>;

  Value() = default;  // undefined
  template <class T, class = std::enable_if_t<kIsOneOf<T, Undefined, None, bool, Int, double, TextPtr, SequencePtr, DictPtr,
                                                       NamespacePtr, ObjectPtr>>>
  Value(T value) : held_(std::in_place_type<T>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  static Value integer(Int value) { return Value(value); }

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  template <class T>
  const T& get() const {
    return *std::get_if<T>(&held_);
  }

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_text() const { return is<TextPtr>(); }
  bool is_number() const { return is<bool>() || is<Int>() || is<double>(); }
  const std::string& text() const;   // of a TextPtr
  const Sequence& sequence() const;  // of a SequencePtr
  const Dict& dict() const;          // of a DictPtr
  /// Of a bool or an Int.
  std::optional<Int> as_int() const;

 private:
  Variant held_;
};

/// A list, a tuple, or another thing that Python iterates over.
struct Sequence final : Held {
  enum class Form {
    kList,
    kTuple,
    kRange,
    kView,      // of a dict
    kIterator,  // what filters like map give: it has no length and is used up by the first loop
  };
  Form form = Form::kList;
  std::vector<Value> items;
  int depth = 1;                    // of what is within it
  std::string label;                // what Python prints for the last three forms, of a view with the items behind it
  bool is_group = false;            // a tuple of the filter groupby, with the attributes `grouper` and `list`
  mutable bool is_used_up = false;  // an iterator
};

struct Dict final : Held {
  using Entry = std::pair<Value, Value>;
  std::vector<Entry> entries;                             // in the order of insertion
  std::vector<std::pair<std::size_t, uint32_t>> by_hash;  // (hash, entry), sorted; empty for few entries
  int depth = 1;

  const Value* find(std::string_view key) const;
  const Value* find(const Value& key, Heap& meter) const;
};

/// What `namespace()` makes: the only thing with attributes that `set` can change.
struct Namespace final : Held {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// Macros, functions, bound methods, `loop` and the like.
class Object : public Held, public std::enable_shared_from_this<Object> {
 public:
  int depth = 1;  // of the values that it holds

  virtual std::string printed() const = 0;
  virtual const char* type_name() const = 0;
  virtual Value call(Interpreter& interpreter, Arguments& arguments);
  virtual std::optional<Value> attribute(std::string_view name, Interpreter& interpreter);
  virtual bool is_callable() const { return true; }
};

/// How deep lists and dicts are within each other: 0 for what holds nothing.
int depth_of(const Value& value);
/// Python's name of a value's type, as error messages have it.
const char* type_name(const Value& value);
/// Python's truth of it.
bool is_true(const Value& value);
/// Python's ==; text that is safe equals text that is not.
bool equal(const Value& a, const Value& b, Heap& heap);
/// Python's `is`, of values that are equal by identity only where they are one.
bool same(const Value& a, const Value& b);
/// Less than 0, 0, or more; fails for values that Python does not order.
int compare(const Value& a, const Value& b, const char* op, Heap& heap);
/// Fails for lists and dicts, which cannot be keys.
std::size_t hash_of(const Value& value, Heap& heap);
/// The message that Python's jinja2 has for an undefined value that is used.
std::string undefined_message(const Undefined& undefined);
[[noreturn]] void fail_undefined(const Value& value);

/// len(); fails where there is none.
int64_t length_of(const Value& value, Heap& heap);
bool is_iterable(const Value& value);
/// What a loop over `value` sees: items, keys of a dict, characters of a text. An iterator is used up by it.
std::vector<Value> items_of(const Value& value, Heap& heap);

}  // namespace ferry::jinja
