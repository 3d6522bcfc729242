#include "runtime/text/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "runtime/text/jinja/expression_parser.h"
#include "runtime/text/jinja/token_stream.h"
#include "runtime/text/jinja/walk.h"

namespace ferry::jinja {
namespace {

using StatementKind = Statement::Kind;
using BlockEnds = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(std::string_view source, const Limits& limits) : stream_(tokenize(source), limits), expressions_(stream_) {}

  Block run() {
    Block block = parse_block({}, "", 0);
    return block;
  }

 private:
  /// Statements up to one of `ends`, at whose name the stream stands then; the end of the template where there are none. `tag`,
  /// begun in `line`, is the block that is read.
  Block parse_block(BlockEnds ends, const std::string& tag, int line) {
    const TokenStream::Level level(stream_);
    Block block;
    while (!stream_.is(Token::Kind::kEnd)) {
      const Token& token = stream_.next();
      if (token.kind == Token::Kind::kData) {
        add(block, StatementKind::kText, token.line).text = token.text;
      } else if (token.kind == Token::Kind::kOutputBegin) {
        add(block, StatementKind::kOutput, token.line).expressions.push_back(expressions_.parse_tuple());
        stream_.expect(Token::Kind::kOutputEnd, "}}");
      } else {
        for (const std::string_view end : ends)
          if (stream_.is_name(end)) return block;
        parse_statement(block);
        stream_.expect(Token::Kind::kBlockEnd, "%}");
      }
    }
    if (ends.size() > 0) throw SyntaxFault{"'" + tag + "' has no end", line};
    return block;
  }

  /// What stands behind the head of a block.
  Block parse_body(BlockEnds ends, const std::string& tag, int line) {
    stream_.skip_operator(":");
    stream_.expect(Token::Kind::kBlockEnd, "%}");
    return parse_block(ends, tag, line);
  }

  static Statement& add(Block& block, StatementKind kind, int line) {
    Statement& statement = block.emplace_back();
    statement.kind = kind;
    statement.line = line;
    return statement;
  }

  void parse_statement(Block& block) {
    const Token& token = stream_.expect(Token::Kind::kName, "the name of a tag");
    const std::string& tag = token.text;
    if (tag == "if") return parse_if(block, token.line);
    if (tag == "for") return parse_for(block, token.line);
    if (tag == "set") return parse_set(block, token.line);
    if (tag == "macro") return parse_macro(block, token.line);
    if (tag == "call") return parse_call(block, token.line);
    if (tag == "filter") return parse_filter(block, token.line);
    if (tag == "with") return parse_with(block, token.line);
    if (tag == "print") return parse_print(block, token.line);
    if (tag == "break" || tag == "continue") return parse_jump(block, token);
    if (tag == "generation") {
      const int num_loops = std::exchange(num_loops_, 0);
      Block body = parse_body({"endgeneration"}, tag, token.line);
      num_loops_ = num_loops;
      stream_.next();
      add(block, StatementKind::kGeneration, token.line).branches.push_back(std::move(body));
      return;
    }
    refuse_tag(token);
  }

  [[noreturn]] static void refuse_tag(const Token& token) {
    constexpr std::array<std::string_view, 6> kOfOtherFiles = {"include", "import", "from", "extends", "block", "autoescape"};
    const bool is_known = std::find(kOfOtherFiles.begin(), kOfOtherFiles.end(), token.text) != kOfOtherFiles.end();
    throw SyntaxFault{(is_known ? "the tag '" + token.text + "' is not supported" : "unknown tag '" + token.text + "'"),
                      token.line};
  }

  void parse_if(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kIf;
    statement.line = line;
    while (true) {
      statement.expressions.push_back(expressions_.parse_tuple(false));
      statement.branches.push_back(parse_body({"elif", "else", "endif"}, "if", line));
      const std::string& end = stream_.next().text;
      if (end == "elif") continue;
      if (end == "else") {
        statement.branches.push_back(parse_body({"endif"}, "if", line));
        stream_.next();
      }
      break;
    }
    block.push_back(std::move(statement));
  }

  void parse_for(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kFor;
    statement.line = line;
    statement.targets.push_back(expressions_.parse_target(false));
    refuse_loop_target(statement.targets.back());
    stream_.expect_name("in");
    statement.expressions.push_back(expressions_.parse_tuple(false));
    statement.expressions.push_back(stream_.skip_name("if") ? expressions_.parse() : nullptr);
    statement.is_recursive = stream_.skip_name("recursive");
    ++num_loops_;
    statement.branches.push_back(parse_body({"endfor", "else"}, "for", line));
    --num_loops_;
    if (stream_.next().text == "else") {
      statement.branches.push_back(parse_body({"endfor"}, "for", line));
      stream_.next();
    }
    block.push_back(std::move(statement));
  }

  static void refuse_loop_target(const Target& target) {
    if (target.name == "loop") throw SyntaxFault{"'loop' cannot be the variable of a loop", target.line};
    for (const Target& part : target.parts) refuse_loop_target(part);
  }

  void parse_set(Block& block, int line) {
    Statement statement;
    statement.line = line;
    statement.targets.push_back(expressions_.parse_target(true));
    if (stream_.skip_operator("=")) {
      statement.kind = StatementKind::kSet;
      statement.expressions.push_back(expressions_.parse_tuple());
    } else {
      statement.kind = StatementKind::kSetBlock;
      statement.expressions.push_back(expressions_.parse_filters(nullptr));
      statement.branches.push_back(parse_body({"endset"}, "set", line));
      stream_.next();
    }
    block.push_back(std::move(statement));
  }

  void parse_with(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kWith;
    statement.line = line;
    while (!stream_.is(Token::Kind::kBlockEnd)) {
      if (!statement.targets.empty()) stream_.expect_operator(",");
      statement.targets.push_back(expressions_.parse_target(false));
      stream_.expect_operator("=");
      statement.expressions.push_back(expressions_.parse());
    }
    statement.branches.push_back(parse_body({"endwith"}, "with", line));
    stream_.next();
    block.push_back(std::move(statement));
  }

  void parse_print(Block& block, int line) {
    while (!stream_.is(Token::Kind::kBlockEnd)) {
      add(block, StatementKind::kOutput, line).expressions.push_back(expressions_.parse());
      if (!stream_.is(Token::Kind::kBlockEnd)) stream_.expect_operator(",");
    }
  }

  void parse_jump(Block& block, const Token& token) {
    if (num_loops_ == 0) throw SyntaxFault{"'" + token.text + "' is outside of any loop", token.line};
    add(block, token.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, token.line);
  }

  void parse_filter(Block& block, int line) {
    ExpressionPtr filters = expressions_.parse_filters(expressions_.parse_filter(nullptr));
    Block body = parse_body({"endfilter"}, "filter", line);
    stream_.next();
    Statement& statement = add(block, StatementKind::kFilter, line);
    statement.expressions.push_back(std::move(filters));
    statement.branches.push_back(std::move(body));
  }

  void parse_parameters(MacroBody& macro) {
    stream_.expect_operator("(");
    while (!stream_.is_operator(")")) {
      if (!macro.parameters.empty()) stream_.expect_operator(",");
      Parameter& parameter = macro.parameters.emplace_back();
      parameter.name = stream_.expect(Token::Kind::kName, "the name of a parameter").text;
      if (stream_.skip_operator("=")) {
        parameter.default_value = expressions_.parse();
      } else if (macro.parameters.size() > 1 && macro.parameters[macro.parameters.size() - 2].default_value) {
        stream_.refuse("a parameter without default follows one with");
      }
    }
    stream_.expect_operator(")");
  }

  /// Reads the body, and sees which of the special variables it has.
  void parse_macro_body(MacroBody& macro, const std::string& tag, const std::string& end) {
    const int num_loops = std::exchange(num_loops_, 0);
    macro.body = parse_body({end}, tag, macro.line);
    num_loops_ = num_loops;
    stream_.next();
    macro.takes_caller = uses_variable(macro.body, "caller");
    macro.takes_varargs = uses_variable(macro.body, "varargs");
    macro.takes_kwargs = uses_variable(macro.body, "kwargs");
    for (const Parameter& parameter : macro.parameters) {
      if (parameter.name == "caller" && macro.takes_caller && !parameter.default_value)
        throw SyntaxFault{"the parameter 'caller' of a macro must have a default", macro.line};
      if (parameter.name == "caller") macro.takes_caller = false;
      if (parameter.name == "varargs") macro.takes_varargs = false;
      if (parameter.name == "kwargs") macro.takes_kwargs = false;
    }
  }

  void parse_macro(Block& block, int line) {
    auto macro = std::make_unique<MacroBody>();
    macro->line = line;
    macro->name = stream_.expect(Token::Kind::kName, "the name of a macro").text;
    parse_parameters(*macro);
    parse_macro_body(*macro, "macro", "endmacro");
    add(block, StatementKind::kMacro, line).macro = std::move(macro);
  }

  void parse_call(Block& block, int line) {
    auto macro = std::make_unique<MacroBody>();
    macro->line = line;
    macro->name = "caller";
    if (stream_.is_operator("(")) parse_parameters(*macro);
    ExpressionPtr call = expressions_.parse();
    if (call->kind != Expression::Kind::kCall) throw SyntaxFault{"'call' needs a call", line};
    parse_macro_body(*macro, "call", "endcall");
    Statement& statement = add(block, StatementKind::kCall, line);
    statement.expressions.push_back(std::move(call));
    statement.macro = std::move(macro);
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int num_loops_ = 0;  // around the place that is read, within its macro
};

}  // namespace

Block parse_template(std::string_view source, const Limits& limits) { return Parser(source, limits).run(); }

}  // namespace ferry::jinja
