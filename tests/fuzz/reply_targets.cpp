#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/text/reply/reply_parser.h"
#include "runtime/text/reply/tool_set.h"
#include "runtime/text/unicode_text.h"
#include "tests/fuzz/small_tokenizer.h"
#include "tests/fuzz/targets.h"

// What a model wrote, and the functions that a stranger says it may call.

namespace ferry::fuzz {
namespace {

const ToolSet& weather_tools() {
  static const ToolSet tools = ToolSet::parse(nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "i": {"type": "integer"},
          "o": {"type": "object"}, "b": {"type": "boolean"}, "n": {"type": ["string", "null"]}}}}},
          {"type": "function", "function": {"name": "g"}}])"));
  return tools;
}

ReplyMessage parse(const Tokenizer& tokenizer, const ReplyParser::Options& options, std::span<const TokenId> ids,
                   std::size_t ids_a_push) {
  ReplyParser parser(tokenizer, options);
  Detokenizer detokenizer(tokenizer, {}, options.special);
  ReplyMessage message;
  int32_t num_told = 0;
  const auto take = [&](const std::vector<ReplyDelta>& deltas) {
    for (const ReplyDelta& delta : deltas) {
      FERRY_CHECK(is_utf8(delta.text));
      message.add(delta);
      num_told += delta.num_tokens;
    }
  };
  for (std::size_t begin = 0; begin < ids.size(); begin += ids_a_push) {
    const std::span<const TokenId> some = ids.subspan(begin, std::min(ids_a_push, ids.size() - begin));
    std::string text;
    for (const TokenId id : some) text += detokenizer.push(id);
    take(parser.push(some, text));
  }
  take(parser.push({}, detokenizer.finish()));
  take(parser.finish());
  FERRY_CHECK(num_told == static_cast<int32_t>(ids.size()));
  return message;
}

}  // namespace

/// The first byte says how the parser is set; the reply follows.
void parse_reply(Input input) {
  const uint8_t flags = input.empty() ? uint8_t{0} : input.front();
  const std::string text(text_of(input.subspan(std::min<std::size_t>(input.size(), 1))));
  const ReplyParser::Options options{.tools = (flags & 1) != 0 ? &weather_tools() : nullptr,
                                     .parallel_calls = (flags & 2) != 0,
                                     .starts_in_reasoning = (flags & 4) != 0};
  for (const Tokenizer* tokenizer : {&small_tokenizer(), &small_tokenizer_with_markers()}) {
    const std::vector<TokenId> ids = tokenizer->encode(text);
    const ReplyMessage whole = parse(*tokenizer, options, ids, std::max<std::size_t>(ids.size(), 1));
    for (const ReplyMessage::Call& call : whole.calls) {
      FERRY_CHECK(parse_json(call.arguments, "arguments", {.depth = 200}).is_object());
    }
    FERRY_CHECK(parse(*tokenizer, options, ids, 1) == whole);
    FERRY_CHECK(parse(*tokenizer, options, ids, 3 + flags / 8) == whole);
  }
}

void read_tools(Input input) {
  const nlohmann::ordered_json list = parse_json(text_of(input), "tools", {.depth = 32, .bytes = 1 << 20, .values = 10000});
  const ToolSet tools = ToolSet::parse(list);
  for (const Tool& tool : tools.tools()) FERRY_CHECK(tools.find(tool.name) == &tool);
}

}  // namespace ferry::fuzz
