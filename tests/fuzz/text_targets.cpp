#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/detokenizer.h"
#include "runtime/text/jinja/json_values.h"
#include "runtime/text/jinja/template.h"
#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/unicode_text.h"
#include "tests/fuzz/small_tokenizer.h"
#include "tests/fuzz/targets.h"

// Text of users: into tokens, back, and into a prompt.

namespace ferry::fuzz {
namespace {

/// `input` cut at its zero bytes.
std::vector<std::string> fields_of(Input input) {
  std::vector<std::string> fields(1);
  for (const char c : text_of(input)) {
    if (c == '\0') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

}  // namespace

void translate_regex(Input input) {
  const PreTokenizer splitter{std::string(text_of(input))};
  const std::string_view text = "The river's 12 stones,\n\n  and more \u00e9\u4e2d\u3000x";
  std::string joined;
  splitter.split(text, [&](std::string_view piece) {
    FERRY_CHECK(!piece.empty());
    joined += piece;
  });
  FERRY_CHECK(joined == text);
}

void split_text(Input input) {
  const Tokenizer& tokenizer = small_tokenizer();
  const std::string text(text_of(input));
  const std::vector<TokenId> tokens = tokenizer.encode(text);
  FERRY_CHECK(tokenizer.encode(tokenizer.decode(tokens, SpecialTokens::kKeep)) == tokens ||
              to_nfc(repair_utf8(text)) != repair_utf8(text));
}

/// The input's first field is a stop string, the bytes that follow are token ids, shifted so that the last ids have no token.
void detokenize(Input input) {
  const Tokenizer& tokenizer = small_tokenizer();
  const std::vector<std::string> fields = fields_of(input);
  std::vector<TokenId> tokens;
  for (const uint8_t byte : input.subspan(std::min(input.size(), fields.front().size()))) tokens.push_back(byte + 20);
  std::vector<std::string> stops;
  if (!fields.front().empty()) stops.push_back(fields.front());
  Detokenizer detokenizer(tokenizer, stops, SpecialTokens::kKeep);
  std::string text;
  for (const TokenId token : tokens) {
    const std::string piece = detokenizer.push(token);
    FERRY_CHECK(is_utf8(piece));
    text += piece;
  }
  text += detokenizer.finish();
  const std::string whole = tokenizer.decode(tokens, SpecialTokens::kKeep);
  const std::size_t stop = stops.empty() ? std::string::npos : whole.find(stops.front());
  FERRY_CHECK(detokenizer.stopped() == (stop != std::string::npos));
  FERRY_CHECK(text == whole.substr(0, stop));
}

/// Fields in turn: role, content, role, content, …
void render_chat(Input input) {
  static const ChatTemplate chat = ChatTemplate::parse(
      R"({%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{{- m.content | trim }}{{- '<|im_end|>\n' }}{%- endfor %})"
      R"({%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n\n</think>\n\n' }}{%- endif %})");
  const std::vector<std::string> fields = fields_of(input);
  ChatInput conversation;
  for (std::size_t i = 0; i + 1 < fields.size(); i += 2)
    conversation.messages.push_back({{"role", fields[i]}, {"content", fields[i + 1]}});
  const std::string prompt = chat.render(conversation);
  FERRY_CHECK(prompt.find("<|im_start|>assistant\n") != std::string::npos);
}

/// A template, and behind a zero byte an object of variables in JSON.
void render_jinja(Input input) {
  jinja::Template::Surroundings surroundings{.now = 0};
  surroundings.limits.steps = 300'000;
  surroundings.limits.held_bytes = int64_t{32} << 20;
  const std::vector<std::string> fields = fields_of(input);
  const auto variables = nlohmann::ordered_json::parse(fields.back(), nullptr, false);
  const std::string output = jinja::Template::parse(fields.front(), surroundings.limits)
                                 .render(
                                     [&](jinja::Heap& heap) {
                                       jinja::Template::Variables values;
                                       if (!variables.is_object()) return values;
                                       for (const auto& [name, value] : variables.items())
                                         values.emplace_back(name, jinja::value_of(value, heap));
                                       return values;
                                     },
                                     surroundings);
  FERRY_CHECK(is_utf8(output));
}

}  // namespace ferry::fuzz
