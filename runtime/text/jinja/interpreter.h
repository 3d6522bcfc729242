#pragma once

#include <ctime>
#include <memory>
#include <string>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/syntax.h"

namespace ferry::jinja {

/// What a template writes, piece by piece, counted by the heap.
class Output {
 public:
  explicit Output(Heap& heap) : heap_(heap) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { heap_.release(num_bytes_); }

  void append(std::string_view text);
  void append(const Value& value);
  std::string take() { return std::move(text_); }

 private:
  void count();

  Heap& heap_;
  std::string text_;
  int64_t num_bytes_ = 0;  // that the heap counts
};

/// Renders a template once. Everything may throw Fault, and what `check_in` of the heap throws.
class Interpreter {
 public:
  /// `now` is what strftime_now() tells.
  Interpreter(Heap& heap, std::time_t now) : heap_(heap), now_(now) {}

  std::string render(const Block& block, const std::shared_ptr<Frame>& variables);

  Heap& heap() { return heap_; }
  std::time_t now() const { return now_; }
  /// Of the template: where the last thing happened.
  int line() const { return line_; }

  Value call(const Value& callee, Arguments& arguments);
  Value filter(std::string_view name, const Value& value, Arguments& arguments);
  bool test(std::string_view name, const Value& value, Arguments& arguments);
  Value call_macro(const MacroBody& macro, const std::shared_ptr<Frame>& scope, Arguments& arguments);
  /// The output of one more turn of a recursive loop, over other items.
  Value call_loop(const Statement& loop, const std::shared_ptr<Frame>& scope, const Value& items, int64_t depth);

  /// Counts how deep blocks, expressions and calls are within each other; fails where that is too deep.
  class Level {
   public:
    explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
      interpreter_.heap_.work();
      if (++interpreter_.depth_ > interpreter_.heap_.limits().depth) interpreter_.fail_depth();
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --interpreter_.depth_; }

   private:
    Interpreter& interpreter_;
  };

 private:
  enum class Flow { kOn, kBreak, kContinue };
  using Scope = std::shared_ptr<Frame>;

  [[noreturn]] void fail_depth();

  // Statements, in interpreter.cpp.
  Flow run(const Block& block, const Scope& scope, Output& output);
  Flow run(const Statement& statement, const Scope& scope, Output& output);
  Flow run_if(const Statement& statement, const Scope& scope, Output& output);
  Flow run_for(const Statement& statement, const Scope& scope, const Value& items, int64_t depth, Output& output);
  std::vector<Value> loop_items(const Statement& statement, const Scope& scope, const Value& items);
  Flow run_with(const Statement& statement, const Scope& scope, Output& output);
  Flow run_captured(const Statement& statement, const Scope& scope, Output& output);
  void run_call(const Statement& statement, const Scope& scope, Output& output);
  void assign(const Target& target, const Value& value, const Scope& scope);
  Value make_macro(const MacroBody& macro, const Scope& scope);

  // Expressions, in evaluation.cpp. `filtered` is what the head of a filter block filters.
  Value evaluate(const ExpressionPtr& expression, const Scope& scope, const Value* filtered = nullptr);
  Value evaluate_here(const Expression& expression, const Scope& scope, const Value* filtered);
  Value variable(const Expression& expression, const Scope& scope);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& parts, const Scope& scope);
  Value evaluate_dict(const Expression& expression, const Scope& scope);
  Value evaluate_slice(const Expression& expression, const Scope& scope);
  Value evaluate_logic(const Expression& expression, const Scope& scope);
  Value evaluate_comparison(const Expression& expression, const Scope& scope);
  Value evaluate_concat(const Expression& expression, const Scope& scope);
  Value evaluate_condition(const Expression& expression, const Scope& scope);
  Value evaluate_native(const Expression& expression, const Scope& scope, const Value* filtered);
  Value evaluate_call(const Expression& expression, const Scope& scope, const Value* caller = nullptr);
  Arguments evaluate_arguments(const CallArguments& arguments, const Scope& scope);

  Heap& heap_;
  const std::time_t now_;
  int line_ = 0;
  int depth_ = 0;
};

}  // namespace ferry::jinja
