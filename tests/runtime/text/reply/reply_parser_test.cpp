#include "runtime/text/reply/reply_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/text/unicode_text.h"
#include "tests/fuzz/small_tokenizer.h"
#include "tests/runtime/text/reply/transcripts.h"
#include "tests/support/draws.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::Transcript;
using test::transcript_tools;
using test::transcripts;
using Ids = std::vector<TokenId>;
using Options = ReplyParser::Options;

/// Has <think>, <tool_call> and their ends as tokens.
const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(test::source_folder() / "launch/demo");
  return tokenizer;
}

/// Has none of them.
const Tokenizer& plain_tokenizer() { return fuzz::small_tokenizer(); }

struct Parsed {
  ReplyMessage message;
  std::vector<std::pair<ReplyPart, int32_t>> parts;  // in order, each once in a row; tokens alone left out
  int32_t num_tokens = 0;                            // that were told
  int32_t num_reasoning_tokens = 0;                  // with deltas of reasoning
};

/// A parser whose deltas are collected and checked.
class ParserRun {
 public:
  ParserRun(const Tokenizer& tokenizer, const Options& options) : parser_(tokenizer, options) {}

  void push(std::span<const TokenId> ids, std::string_view text) {
    num_pushed_ += static_cast<int32_t>(ids.size());
    take(parser_.push(ids, text));
    EXPECT_LE(parsed_.num_tokens, num_pushed_);
  }

  Parsed finish() {
    take(parser_.finish());
    EXPECT_EQ(parsed_.num_tokens, num_pushed_);
    EXPECT_EQ(parsed_.num_reasoning_tokens, parser_.reasoning_tokens());
    EXPECT_EQ(static_cast<int32_t>(parsed_.message.calls.size()), parser_.num_calls());
    EXPECT_EQ(open_call_, -1) << "a call has no end";
    for (const ReplyMessage::Call& call : parsed_.message.calls) {
      EXPECT_TRUE(json::parse(call.arguments, nullptr, false).is_object()) << call.arguments;
    }
    return parsed_;
  }

 private:
  void take(const std::vector<ReplyDelta>& deltas) {
    for (const ReplyDelta& delta : deltas) {
      check_order(delta);
      parsed_.message.add(delta);
      parsed_.num_tokens += delta.num_tokens;
      if (delta.part == ReplyPart::kReasoning) parsed_.num_reasoning_tokens += delta.num_tokens;
      const bool is_piece = delta.part != ReplyPart::kCallBegin && delta.part != ReplyPart::kCallEnd;
      if (is_piece && delta.text.empty()) continue;
      const std::pair part(delta.part, delta.call_idx);
      if (parsed_.parts.empty() || parsed_.parts.back() != part) parsed_.parts.push_back(part);
    }
  }

  void check_order(const ReplyDelta& delta) {
    if (delta.part == ReplyPart::kCallBegin) {
      EXPECT_EQ(open_call_, -1);
      EXPECT_EQ(delta.call_idx, static_cast<int32_t>(parsed_.message.calls.size()));
      EXPECT_FALSE(delta.text.empty());
      open_call_ = delta.call_idx;
    } else if (delta.part == ReplyPart::kCallArguments || delta.part == ReplyPart::kCallEnd) {
      EXPECT_EQ(delta.call_idx, open_call_);
      if (delta.part == ReplyPart::kCallEnd) open_call_ = -1;
    } else if (!delta.text.empty()) {
      EXPECT_EQ(open_call_, -1);
    }
  }

  ReplyParser parser_;
  Parsed parsed_;
  int32_t num_pushed_ = 0;
  int32_t open_call_ = -1;
};

void expect_same(const Parsed& parsed, const Parsed& whole) {
  EXPECT_EQ(parsed.message, whole.message);
  EXPECT_EQ(parsed.parts, whole.parts);
  EXPECT_EQ(parsed.num_reasoning_tokens, whole.num_reasoning_tokens);
}

Options options_of(const Transcript& transcript) {
  return {.tools = &transcript_tools(), .starts_in_reasoning = transcript.starts_in_reasoning};
}

/// A reply's tokens, with the text that each of them adds.
struct Reply {
  const Tokenizer* tokenizer;
  Ids ids;
  std::vector<std::string> pieces;
  std::string text;

  Reply(const Tokenizer& tokenizer_of_ids, Ids all_ids) : tokenizer(&tokenizer_of_ids), ids(std::move(all_ids)) {
    Detokenizer detokenizer(*tokenizer, {}, SpecialTokens::kSkip);
    for (const TokenId id : ids) pieces.push_back(detokenizer.push(id));
    if (!ids.empty()) pieces.back() += detokenizer.finish();
    for (const std::string& piece : pieces) text += piece;
  }

  Parsed parse_whole(const Options& options) const {
    ParserRun run(*tokenizer, options);
    run.push(ids, text);
    return run.finish();
  }

  /// One push for the tokens of each run between `cuts`, indices of tokens.
  Parsed parse_cut(const Options& options, const std::vector<std::size_t>& cuts) const {
    ParserRun run(*tokenizer, options);
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= cuts.size(); ++i) {
      const std::size_t end = i < cuts.size() ? cuts[i] : ids.size();
      std::string piece;
      for (std::size_t k = begin; k < end; ++k) piece += pieces[k];
      run.push(std::span(ids).subspan(begin, end - begin), piece);
      begin = end;
    }
    return run.finish();
  }

  /// All tokens, then the text in two pieces.
  Parsed parse_text_cut(const Options& options, std::size_t cut) const {
    ParserRun run(*tokenizer, options);
    run.push(ids, std::string_view(text).substr(0, cut));
    run.push({}, std::string_view(text).substr(cut));
    return run.finish();
  }

  std::vector<std::size_t> every_token() const {
    std::vector<std::size_t> cuts;
    for (std::size_t i = 1; i < ids.size(); ++i) cuts.push_back(i);
    return cuts;
  }
};

std::vector<Reply> replies_of(const Transcript& transcript) {
  return {{demo_tokenizer(), demo_tokenizer().encode(transcript.text)},
          {plain_tokenizer(), plain_tokenizer().encode(transcript.text)}};
}

TEST(ReplyParser, TranscriptsMeanWhatTheySay) {
  for (const Transcript& transcript : transcripts()) {
    SCOPED_TRACE(transcript.name);
    for (const Reply& reply : replies_of(transcript)) {
      EXPECT_EQ(reply.parse_whole(options_of(transcript)).message, transcript.expected);
    }
  }
}

constexpr std::size_t kStride = test::draws(1U, 3U);  // from one place where a text is cut to the next

TEST(ReplyParser, CutsMakeNoDifference) {
  for (const Transcript& transcript : transcripts()) {
    SCOPED_TRACE(transcript.name);
    const Options options = options_of(transcript);
    for (const Reply& reply : replies_of(transcript)) {
      const Parsed whole = reply.parse_whole(options);
      for (std::size_t cut = 0; cut <= reply.ids.size(); cut += kStride) expect_same(reply.parse_cut(options, {cut}), whole);
      expect_same(reply.parse_cut(options, reply.every_token()), whole);
      for (std::size_t cut = 0; cut <= reply.text.size(); cut += kStride)
        expect_same(reply.parse_text_cut(options, cut), whole);
      ParserRun by_bytes(*reply.tokenizer, options);
      by_bytes.push(reply.ids, "");
      for (const char& c : reply.text) by_bytes.push({}, std::string_view(&c, 1));
      expect_same(by_bytes.finish(), whole);
    }
  }
}

TEST(ReplyParser, EveryPrefixClosesItsCalls) {
  for (const Transcript& transcript : transcripts()) {
    SCOPED_TRACE(transcript.name);
    for (const Reply& reply : replies_of(transcript)) {
      for (std::size_t end = 0; end <= reply.ids.size(); end += kStride) {
        const Reply prefix(*reply.tokenizer, Ids(reply.ids.begin(), reply.ids.begin() + static_cast<std::ptrdiff_t>(end)));
        const Parsed whole = prefix.parse_whole(options_of(transcript));
        expect_same(prefix.parse_cut(options_of(transcript), prefix.every_token()), whole);
      }
    }
  }
}

/// `ids` with some of them gone, twice, in other places or replaced.
Ids mutated(Ids ids, const Ids& others, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::ptrdiff_t>(random() % n); };
  for (int i = below(6) + 1; i > 0 && !ids.empty(); --i) {
    const std::ptrdiff_t at = below(ids.size());
    const std::ptrdiff_t end = at + below(std::min<std::size_t>(6, ids.size() - static_cast<std::size_t>(at))) + 1;
    const Ids piece(ids.begin() + at, ids.begin() + end);
    switch (random() % 4) {
      case 0: ids.erase(ids.begin() + at, ids.begin() + end); break;
      case 1: ids.insert(ids.begin() + below(ids.size() + 1), piece.begin(), piece.end()); break;
      case 2: ids[static_cast<std::size_t>(at)] = others[random() % others.size()]; break;
      default: std::swap(ids[static_cast<std::size_t>(at)], ids[random() % ids.size()]); break;
    }
  }
  return ids;
}

TEST(ReplyParser, MutatedTranscriptsAreTakenApart) {
  std::mt19937 random(7);
  for (const Tokenizer* tokenizer : {&demo_tokenizer(), &plain_tokenizer()}) {
    Ids all;
    for (const Transcript& transcript : transcripts()) {
      const Ids ids = tokenizer->encode(transcript.text);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    for (int round = 0; round < test::draws(3000, 1000); ++round) {
      const Transcript& transcript = transcripts()[random() % transcripts().size()];
      const Reply reply(*tokenizer, mutated(tokenizer->encode(transcript.text), all, random));
      SCOPED_TRACE(reply.text);
      const Options options = options_of(transcript);
      const Parsed whole = reply.parse_whole(options);
      expect_same(reply.parse_cut(options, reply.every_token()), whole);
      expect_same(reply.parse_cut(options, {random() % (reply.ids.size() + 1)}), whole);
      expect_same(reply.parse_text_cut(options, random() % (reply.text.size() + 1)), whole);
      if (HasFailure()) return;
    }
  }
}

TEST(ReplyParser, WithoutToolsCallsAreContent) {
  const std::string text = "<tool_call>\n<function=now>\n</function>\n</tool_call>\n";
  for (const Tokenizer* tokenizer : {&demo_tokenizer(), &plain_tokenizer()}) {
    const Reply reply(*tokenizer, tokenizer->encode(text));
    EXPECT_EQ(reply.parse_whole({}).message, (ReplyMessage{"", text, {}}));
    const Reply thought(*tokenizer, tokenizer->encode("a " + text + "b</think>c"));
    EXPECT_EQ(thought.parse_whole({.starts_in_reasoning = true}).message, (ReplyMessage{"a " + text + "b", "c", {}}));
  }
}

TEST(ReplyParser, MarkersSpelledByOtherTokensAreText) {
  Ids ids;
  for (const char c : std::string_view("The tag </think> and <tool_call>."))
    ids.push_back(*demo_tokenizer().id_of(std::string_view(&c, 1)));
  const Reply reply(demo_tokenizer(), ids);
  EXPECT_EQ(reply.parse_whole({.tools = &transcript_tools(), .starts_in_reasoning = true}).message.reasoning,
            "The tag </think> and <tool_call>.");
}

TEST(ReplyParser, OnlyTheFirstCallWithoutParallelCalls) {
  const Reply reply(
      demo_tokenizer(),
      demo_tokenizer().encode("<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n"
                              "<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>\nDone."));
  const Options options{.tools = &transcript_tools(), .parallel_calls = false};
  const Parsed whole = reply.parse_whole(options);
  EXPECT_EQ(whole.message, (ReplyMessage{"", "Done.", {{"now", "{}"}}}));
  expect_same(reply.parse_cut(options, reply.every_token()), whole);
}

TEST(ReplyParser, ArgumentsArriveWhileTheyAreWritten) {
  ReplyParser parser(demo_tokenizer(), {.tools = &transcript_tools()});
  const auto told = [&](const std::string& text) {
    std::string arguments;
    for (const ReplyDelta& delta : parser.push(demo_tokenizer().encode(text), text)) {
      if (delta.part == ReplyPart::kCallArguments) arguments += delta.text;
    }
    return arguments;
  };
  EXPECT_EQ(told("<tool_call>\n<function=write_file>\n<parameter=content>"), R"({"content": ")");
  EXPECT_EQ(told("\nfirst \"line\"\n"), R"(first \"line\")");
  EXPECT_EQ(told("second</par"), R"(\nsecond)");
  EXPECT_EQ(told("ty>"), R"(</party>)");
  EXPECT_EQ(told("\n</parameter>\n"), "\"");
  EXPECT_EQ(told("<parameter=scale>\n1."), "");
  EXPECT_EQ(told("5\n</parameter>"), R"(, "scale": 1.5)");
  EXPECT_EQ(told("\n</function>"), "}");
}

TEST(ReplyParser, ACutCallMayStayAsItWasWritten) {
  const std::string begin = "<tool_call>\n<function=write_file>\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"<parameter=pa", ""},
      {"<parameter=content>\nfirst \"line", R"({"content": "first \"line)"},
      {"<parameter=content>\nwhole\n</parameter>\n", R"({"content": "whole")"},
      {"<parameter=content>\nwhole\n</parameter>\n<parameter=scale>\n1.", R"({"content": "whole", "scale": 1.)"},
      {"<parameter=content>\na}\n</parameter>\n<parameter=content>\nb}", R"({"content": "a}", "content": "b})"},
  };
  for (const auto& [text, expected] : cases) {
    const Reply reply(demo_tokenizer(), demo_tokenizer().encode(begin + text));
    const auto arguments = [&](bool closes, bool is_cut) {
      ReplyParser parser(demo_tokenizer(), {.tools = &transcript_tools(), .closes_cut_calls = closes});
      ReplyMessage message;
      for (const ReplyDelta& delta : parser.push(reply.ids, reply.text)) message.add(delta);
      for (const ReplyDelta& delta : parser.finish(is_cut)) message.add(delta);
      EXPECT_EQ(message.calls.size(), 1U);
      return message.calls.at(0).arguments;
    };
    EXPECT_EQ(arguments(false, true), expected) << text;
    for (const auto& [closes, is_cut] : {std::pair(true, true), {true, false}, {false, false}})
      EXPECT_TRUE(nlohmann::json::accept(arguments(closes, is_cut))) << text;
  }
}

TEST(ReplyParser, TokensAreToldWithTheirPart) {
  const Tokenizer& tokenizer = demo_tokenizer();
  const Ids ids = tokenizer.encode("Hm.\n</think>\n\nYes.\n<tool_call>\n<function=now>\n</function>\n</tool_call>");
  const Reply reply(tokenizer, ids);
  const auto thought_end = std::find(ids.begin(), ids.end(), *tokenizer.id_of("</think>"));
  const auto call_begin = std::find(ids.begin(), ids.end(), *tokenizer.id_of("<tool_call>"));
  ReplyParser parser(tokenizer, {.tools = &transcript_tools(), .starts_in_reasoning = true});
  const std::vector<ReplyDelta> deltas = parser.push(ids, reply.text);
  ASSERT_GE(deltas.size(), 4U);
  EXPECT_EQ(deltas[0].part, ReplyPart::kReasoning);
  EXPECT_EQ(deltas[0].num_tokens, thought_end + 1 - ids.begin());
  EXPECT_EQ(parser.reasoning_tokens(), deltas[0].num_tokens);
  EXPECT_EQ(deltas[1].part, ReplyPart::kContent);
  EXPECT_EQ(deltas[1].text, "Yes.");
  EXPECT_GE(deltas[0].num_tokens + deltas[1].num_tokens, call_begin - ids.begin());
  EXPECT_EQ(deltas[2].part, ReplyPart::kCallBegin);
}

TEST(ReplyParser, ATokenWhoseTextIsHeldBackIsToldWithIt) {
  const Tokenizer& tokenizer = demo_tokenizer();
  const Ids first = tokenizer.encode("The river");
  ReplyParser parser(tokenizer, {});
  const std::vector<ReplyDelta> held = parser.push(first, "");  // a stop string may begin so
  EXPECT_TRUE(held.empty());
  const std::vector<ReplyDelta> told = parser.push({}, "The river");
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].num_tokens, static_cast<int32_t>(first.size()));
  EXPECT_TRUE(parser.push(tokenizer.encode(" rose"), "").empty());  // found: what it hides never comes
  const std::vector<ReplyDelta> last = parser.finish();
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].num_tokens, static_cast<int32_t>(tokenizer.encode(" rose").size()));
  EXPECT_TRUE(last[0].text.empty());
}

TEST(ReplyParser, HiddenTokensAreToldToo) {
  const Tokenizer& tokenizer = demo_tokenizer();
  ReplyParser parser(tokenizer, {});
  const Ids ids = {*tokenizer.id_of("<|im_end|>")};
  const std::vector<ReplyDelta> deltas = parser.push(ids, "");
  ASSERT_EQ(deltas.size(), 1U);
  EXPECT_EQ(deltas[0].num_tokens, 1);
}

TEST(ReplyMarkers, PromptsThatEndInsideAThought) {
  for (const Tokenizer* tokenizer : {&demo_tokenizer(), &plain_tokenizer()}) {
    const ReplyMarkers markers(*tokenizer);
    const auto ends_in_reasoning = [&](const std::string& prompt) {
      return markers.ends_in_reasoning(tokenizer->encode(prompt));
    };
    EXPECT_TRUE(ends_in_reasoning("<|im_start|>assistant\n<think>\n"));
    EXPECT_FALSE(ends_in_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    EXPECT_FALSE(ends_in_reasoning("<|im_start|>assistant\n"));
    EXPECT_FALSE(ends_in_reasoning("<|im_start|>user\nWhat does <think> mean?<|im_end|>\n<|im_start|>assistant\n"));
    EXPECT_TRUE(ends_in_reasoning("<|im_start|>user\n</think><|im_end|>\n<|im_start|>assistant\n<think>\nI have begun"));
    EXPECT_FALSE(ends_in_reasoning(""));
  }
}

}  // namespace
}  // namespace ferry
