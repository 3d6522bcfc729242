#include "runtime/text/jinja/interpreter.h"

#include <algorithm>

#include "runtime/text/jinja/loop.h"
#include "runtime/text/jinja/printing.h"

namespace ferry::jinja {
namespace {

using StatementKind = Statement::Kind;

class Macro final : public Object {
 public:
  Macro(const MacroBody& body, std::shared_ptr<Frame> scope) : body_(body), scope_(std::move(scope)) {}
  std::string printed() const override { return "<Macro '" + body_.name + "'>"; }
  const char* type_name() const override { return "Macro"; }
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return interpreter.call_macro(body_, scope_, arguments);
  }
  std::optional<Value> attribute(std::string_view name, Interpreter& interpreter) override {
    if (name == "name") return interpreter.heap().text(body_.name);
    return std::nullopt;
  }

 private:
  const MacroBody& body_;
  std::shared_ptr<Frame> scope_;
};

}  // namespace

void Output::append(std::string_view text) {
  heap_.require(text_.size() + text.size());
  heap_.read(text.size());
  text_ += text;
  count();
}

void Output::append(const Value& value) {
  append_text(value, text_, heap_);
  count();
}

/// What a string grows by is what it has: the heap counts in steps of doubling.
void Output::count() {
  const auto num_bytes = static_cast<int64_t>(text_.capacity());
  if (num_bytes <= num_bytes_) return;
  heap_.hold(num_bytes - num_bytes_);
  num_bytes_ = num_bytes;
}

std::string Interpreter::render(const Block& block, const std::shared_ptr<Frame>& variables) {
  Output output(heap_);
  run(block, heap_.frame(variables), output);
  return output.take();
}

void Interpreter::fail_depth() {
  --depth_;
  fail("blocks, expressions and calls are nested deeper than " + std::to_string(heap_.limits().depth));
}

Interpreter::Flow Interpreter::run(const Block& block, const Scope& scope, Output& output) {
  const Level level(*this);
  for (const Statement& statement : block) {
    const Flow flow = run(statement, scope, output);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run(const Statement& statement, const Scope& scope, Output& output) {
  heap_.work();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText: output.append(statement.text); return Flow::kOn;
    case StatementKind::kOutput: output.append(evaluate(statement.expressions[0], scope)); return Flow::kOn;
    case StatementKind::kIf: return run_if(statement, scope, output);
    case StatementKind::kFor:
      if (!statement.is_recursive) return run_for(statement, scope, evaluate(statement.expressions[0], scope), 1, output);
      output.append(call_loop(statement, scope, evaluate(statement.expressions[0], scope), 1));
      return Flow::kOn;
    case StatementKind::kSet: assign(statement.targets[0], evaluate(statement.expressions[0], scope), scope); return Flow::kOn;
    case StatementKind::kWith: return run_with(statement, scope, output);
    case StatementKind::kSetBlock:
    case StatementKind::kFilter:
    case StatementKind::kGeneration: return run_captured(statement, scope, output);
    case StatementKind::kMacro: scope->set(statement.macro->name, make_macro(*statement.macro, scope)); return Flow::kOn;
    case StatementKind::kCall: run_call(statement, scope, output); return Flow::kOn;
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement, const Scope& scope, Output& output) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i)
    if (is_true(evaluate(statement.expressions[i], scope))) return run(statement.branches[i], scope, output);
  const bool has_else = statement.branches.size() > statement.expressions.size();
  return has_else ? run(statement.branches.back(), scope, output) : Flow::kOn;
}

/// The items that a loop goes over: those for which its condition holds.
std::vector<Value> Interpreter::loop_items(const Statement& statement, const Scope& scope, const Value& items) {
  std::vector<Value> all = items_of(items, heap_);
  if (!statement.expressions[1]) return all;
  std::vector<Value> chosen;
  for (Value& item : all) {
    const Scope inner = heap_.frame(scope);
    assign(statement.targets[0], item, inner);
    if (is_true(evaluate(statement.expressions[1], inner))) chosen.push_back(std::move(item));
  }
  return chosen;
}

Interpreter::Flow Interpreter::run_for(const Statement& statement, const Scope& scope, const Value& items, int64_t depth,
                                       Output& output) {
  const Level level(*this);
  const auto loop = heap_.object<Loop>(statement, scope, loop_items(statement, scope, items), depth, heap_);
  if (loop->is_empty())
    return statement.branches.size() > 1 ? run(statement.branches[1], heap_.frame(scope), output) : Flow::kOn;
  for (; !loop->is_done(); loop->advance()) {
    const Scope inner = heap_.frame(scope);
    line_ = statement.line;
    assign(statement.targets[0], loop->item(), inner);
    inner->set("loop", ObjectPtr(loop));
    if (run(statement.branches[0], inner, output) == Flow::kBreak) break;
  }
  return Flow::kOn;
}

Value Interpreter::call_loop(const Statement& loop, const Scope& scope, const Value& items, int64_t depth) {
  Output output(heap_);
  run_for(loop, scope, items, depth, output);
  return heap_.text(output.take());
}

Interpreter::Flow Interpreter::run_with(const Statement& statement, const Scope& scope, Output& output) {
  const Scope inner = heap_.frame(scope);
  for (std::size_t i = 0; i < statement.targets.size(); ++i)
    assign(statement.targets[i], evaluate(statement.expressions[i], scope), inner);
  return run(statement.branches[0], inner, output);
}

/// A block whose output is assigned, filtered, or (for `generation`) written as it is.
Interpreter::Flow Interpreter::run_captured(const Statement& statement, const Scope& scope, Output& output) {
  Output captured(heap_);
  const Scope inner = heap_.frame(scope);
  const Flow flow = run(statement.branches[0], inner, captured);
  if (flow != Flow::kOn) return flow;
  Value text = heap_.text(captured.take());
  line_ = statement.line;
  if (statement.kind != StatementKind::kGeneration && statement.expressions[0])
    text = evaluate(statement.expressions[0], inner, &text);
  if (statement.kind == StatementKind::kSetBlock) {
    assign(statement.targets[0], text, scope);
  } else {
    output.append(text);
  }
  return Flow::kOn;
}

void Interpreter::run_call(const Statement& statement, const Scope& scope, Output& output) {
  const Value caller = make_macro(*statement.macro, scope);
  output.append(evaluate_call(*statement.expressions[0], scope, &caller));
}

Value Interpreter::make_macro(const MacroBody& macro, const Scope& scope) {
  heap_.keep(scope);
  return ObjectPtr(heap_.object<Macro>(macro, scope));
}

void Interpreter::assign(const Target& target, const Value& value, const Scope& scope) {
  if (target.parts.empty() && target.attribute.empty()) {
    scope->set(target.name, value);
    return;
  }
  if (target.parts.empty()) {
    const Value* space = scope->find(target.name);
    line_ = target.line;
    if (space == nullptr) fail("'" + target.name + "' is undefined");
    if (!space->is<NamespacePtr>()) fail("cannot assign attribute on non-namespace object");
    space->get<NamespacePtr>()->set(target.attribute, value);
    return;
  }
  const Level level(*this);
  line_ = target.line;
  const std::vector<Value> items = items_of(value, heap_);
  if (items.size() != target.parts.size()) {
    fail("cannot unpack " + std::to_string(items.size()) + " values into " + std::to_string(target.parts.size()) +
         " variables");
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
}

/// jinja2's rules: parameters take positional arguments, then named ones, then their defaults, which see the parameters before
/// them; what is left over goes to `varargs` and `kwargs` where the body has these.
Value Interpreter::call_macro(const MacroBody& macro, const Scope& scope, Arguments& arguments) {
  const Level level(*this);
  const Scope inner = heap_.frame(scope);
  const std::string name = "macro '" + macro.name + "'";
  const std::size_t num_given = std::min(arguments.positional.size(), macro.parameters.size());
  std::vector<std::pair<std::string, Value>> named = std::move(arguments.named);
  const auto take_named = [&](std::string_view wanted, Value& value) {
    heap_.work(std::ssize(named));
    const auto at = std::find_if(named.begin(), named.end(), [&](const auto& argument) { return argument.first == wanted; });
    if (at == named.end()) return false;
    value = std::move(at->second);
    named.erase(at);
    return true;
  };
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (i < num_given) {
      inner->set(parameter.name, arguments.positional[i]);
    } else if (Value value; take_named(parameter.name, value)) {
      inner->set(parameter.name, std::move(value));
    } else if (parameter.default_value) {
      inner->set(parameter.name, evaluate(parameter.default_value, inner));
    } else {
      inner->set(parameter.name, heap_.undefined("parameter '" + parameter.name + "' was not provided"));
    }
  }
  if (macro.takes_caller) {
    Value caller;
    inner->set("caller", take_named("caller", caller) ? caller : heap_.undefined("No caller defined"));
  }
  if (macro.takes_kwargs) {
    std::vector<Dict::Entry> entries;
    for (auto& [key, value] : named) entries.emplace_back(heap_.text(key), std::move(value));
    inner->set("kwargs", heap_.dict(std::move(entries)));
  } else if (!named.empty()) {
    fail(name + " takes no keyword argument '" + named.front().first + "'");
  }
  if (macro.takes_varargs) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_given);
    inner->set("varargs", heap_.tuple({rest, arguments.positional.end()}));
  } else if (arguments.positional.size() > num_given) {
    fail(name + " takes not more than " + std::to_string(macro.parameters.size()) + " argument(s)");
  }
  Output output(heap_);
  run(macro.body, inner, output);
  return heap_.text(output.take());
}

}  // namespace ferry::jinja
