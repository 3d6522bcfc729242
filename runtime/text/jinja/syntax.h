#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.h"

// A template as a tree. What each kind holds is said beside it; lines count from 1.

namespace ferry::jinja {

class Native;
struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

/// The arguments of a call, a filter or a test.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *value, or null
  ExpressionPtr more_named;       // **value, or null
};

struct Expression {
  enum class Kind {
    kConstant,   // constant
    kVariable,   // name
    kList,       // parts
    kTuple,      // parts
    kDict,       // parts: key, value, key, value, …
    kAttribute,  // parts[0] . name
    kItem,       // parts[0] [ parts[1] ]
    kSlice,      // parts[0] [ parts[1] : parts[2] : parts[3] ], null where left out
    kCall,       // parts[0] ( arguments )
    kFilter,     // parts[0] | name ( arguments ); parts[0] is null at the head of a filter block
    kTest,       // parts[0] is name ( arguments )
    kNot,        // parts[0]
    kNegate,     // parts[0]
    kPlus,       // parts[0]
    kAnd,        // parts
    kOr,         // parts
    kBinary,     // parts[0] op parts[1]
    kCompare,    // parts[0] comparisons[0] parts[1] comparisons[1] parts[2] …
    kConcat,     // parts, joined by ~
    kCondition,  // parts[0] if parts[1] else parts[2], null where left out
  };
  enum class Op { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
  enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;  // of the expressions within it
  Value constant;
  TextPtr name;
  const Native* native = nullptr;  // of a filter or test; null where there is none of this name
  Op op = Op::kAdd;
  std::vector<Comparison> comparisons;
  std::vector<ExpressionPtr> parts;
  CallArguments arguments;
};

/// What a value is assigned to: a name, an attribute of a namespace, or several of these.
struct Target {
  std::string name;       // empty for a tuple
  std::string attribute;  // empty for a variable
  std::vector<Target> parts;
  int line = 0;
};

struct Parameter {
  std::string name;
  ExpressionPtr default_value;  // or null
};

struct Statement;
using Block = std::vector<Statement>;

/// A macro, or the block of a `call`.
struct MacroBody {
  std::string name;
  std::vector<Parameter> parameters;
  bool takes_caller = false;  // the body has a variable of this name that no parameter gives
  bool takes_varargs = false;
  bool takes_kwargs = false;
  int line = 0;
  Block body;
};

struct Statement {
  enum class Kind {
    kText,        // text
    kOutput,      // expressions[0]
    kIf,          // branches: conditions in `expressions`; a last one without is `else`
    kFor,         // targets[0] in expressions[0] if expressions[1] (or null): branches[0], else branches[1]
    kSet,         // targets[0] = expressions[0]
    kSetBlock,    // targets[0] = the output of branches[0], filtered by expressions[0] (or null)
    kWith,        // targets = expressions: branches[0]
    kMacro,       // macro
    kCall,        // expressions[0], a call, with `macro` as its caller
    kFilter,      // the output of branches[0], filtered by expressions[0]
    kGeneration,  // branches[0]
    kBreak,
    kContinue,
  };

  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Block> branches;
  std::unique_ptr<const MacroBody> macro;
  bool is_recursive = false;  // a loop that calls itself
};

}  // namespace ferry::jinja
