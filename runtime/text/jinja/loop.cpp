#include "runtime/text/jinja/loop.h"

#include <algorithm>

#include "runtime/text/jinja/interpreter.h"

namespace ferry::jinja {
namespace {

constexpr std::string_view kLastSeen = "last seen";

/// loop.cycle or loop.changed, not called yet. It lives in the loop that it is of, so it must not outlive a turn: it holds it.
class LoopMethod final : public Object {
 public:
  enum class Kind { kCycle, kChanged };
  LoopMethod(Loop& loop, ObjectPtr owner, Kind kind) : loop_(loop), owner_(std::move(owner)), kind_(kind) {
    depth = owner_->depth + 1;
  }
  std::string printed() const override { return "<bound method of LoopContext>"; }
  const char* type_name() const override { return "method"; }
  Value call(Interpreter& /*interpreter*/, Arguments& arguments) override {
    return kind_ == Kind::kCycle ? loop_.cycle(arguments) : Value(loop_.changed(arguments));
  }

 private:
  Loop& loop_;
  ObjectPtr owner_;
  Kind kind_;
};

}  // namespace

Loop::Loop(const Statement& statement, std::shared_ptr<Frame> scope, std::vector<Value> items, int64_t depth_now, Heap& values)
    : statement_(statement), items_(std::move(items)), depth_(depth_now), values_(values) {
  if (statement.is_recursive) {
    scope_ = std::move(scope);
    values.keep(scope_);
  }
  for (const Value& item : items_) depth = std::max(depth, depth_of(item) + 1);
  num_item_bytes_ = std::ssize(items_) * static_cast<int64_t>(sizeof(Value));
  values.hold(num_item_bytes_);
}

Loop::~Loop() { values_.release(num_item_bytes_); }

std::string Loop::printed() const {
  return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_.size()) + ">";
}

Value Loop::call(Interpreter& interpreter, Arguments& arguments) {
  if (!statement_.is_recursive) fail("The loop must have the 'recursive' marker to be called recursively.");
  const Bound bound("loop", arguments, {"iterable"}, 1);
  return interpreter.call_loop(statement_, scope_, bound[0], depth_ + 1);
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

bool Loop::changed(const Arguments& arguments) {
  const Value now = values_.tuple(arguments.positional);
  if (!last_seen_) {
    last_seen_ = values_.frame(nullptr);
    values_.keep(last_seen_);
  }
  const Value* before = last_seen_->find(kLastSeen);
  if (before != nullptr && equal(*before, now, values_)) return false;
  last_seen_->set(kLastSeen, now);
  return true;
}

std::optional<Value> Loop::attribute(std::string_view name, Interpreter& interpreter) {
  const auto integer = [](std::size_t value) { return Value::integer(static_cast<Int>(value)); };
  if (name == "index") return integer(index_ + 1);
  if (name == "index0") return integer(index_);
  if (name == "first") return index_ == 0;
  if (name == "last") return index_ + 1 >= items_.size();
  if (name == "length") return integer(items_.size());
  if (name == "revindex") return integer(items_.size() - index_);
  if (name == "revindex0") return integer(items_.size() - index_ - 1);
  if (name == "depth") return Value::integer(depth_);
  if (name == "depth0") return Value::integer(depth_ - 1);
  if (name == "previtem") return index_ > 0 ? items_[index_ - 1] : values_.undefined("there is no previous item");
  if (name == "nextitem") return index_ + 1 < items_.size() ? items_[index_ + 1] : values_.undefined("there is no next item");
  if (name == "cycle" || name == "changed") {
    const auto kind = name == "cycle" ? LoopMethod::Kind::kCycle : LoopMethod::Kind::kChanged;
    return ObjectPtr(interpreter.heap().object<LoopMethod>(*this, shared_from_this(), kind));
  }
  return std::nullopt;
}

}  // namespace ferry::jinja
