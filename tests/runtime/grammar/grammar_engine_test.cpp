#include "runtime/grammar/grammar_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <limits>
#include <regex>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/text/reply/reply_parser.h"
#include "runtime/text/unicode_text.h"
#include "tests/fuzz/small_tokenizer.h"
#include "tests/runtime/grammar/random_walk.h"
#include "tests/support/draws.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/schema_validator.h"
#include "tests/support/source_folder.h"

// Completions of the demo model's vocabulary under every kind of grammar.

namespace ferry {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using test::random_walk;
using test::Walk;
using testing::HasSubstr;

const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(test::source_folder() / "launch/demo");
  return tokenizer;
}

std::vector<TokenId> stop_ids(const Tokenizer& tokenizer) {
  return {*tokenizer.id_of("<|im_end|>"), *tokenizer.id_of("<|endoftext|>")};
}

class GrammarEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!GrammarEngine::is_available()) GTEST_SKIP() << "structured output is not built";
  }
  static GrammarEngine& engine() {
    static GrammarEngine engine(demo_tokenizer(), stop_ids(demo_tokenizer()), {.compile_time = std::chrono::minutes(4)});
    return engine;
  }
  Walk walk(const GrammarSpec& spec, bool in_reasoning = false, std::size_t patience = 60) {
    const std::shared_ptr<TokenGrammar> grammar = engine().make(spec, in_reasoning);
    return random_walk(*grammar, demo_tokenizer(), random_, patience);
  }

  std::mt19937 random_{11};
};

TEST_F(GrammarEngineTest, CompletionsAreValidUnderTheirSchemas) {
  std::ifstream file(test::source_folder() / "tests/runtime/grammar/schemas.json");
  const ordered_json cases = ordered_json::parse(file);
  ASSERT_GE(cases.size(), 50U);
  constexpr int kRounds = test::draws(4, 1);
  int num_finished = 0;
  for (const ordered_json& entry : cases) {
    SCOPED_TRACE(entry["name"]);
    const GrammarSpec spec = json_schema_grammar(entry["schema"], "schema");
    for (int round = 0; round < kRounds; ++round) {
      const Walk result = walk(spec, false, round == 3 ? 4 : 30);
      if (!result.terminated) continue;
      ++num_finished;
      EXPECT_EQ(test::invalid_text(result.text, json(entry["schema"])), "") << result.text;
    }
  }
  EXPECT_GE(4 * num_finished, static_cast<int>(cases.size()) * 3 * kRounds) << "walks end";
}

TEST_F(GrammarEngineTest, AnyObject) {
  const Walk result = walk(json_object_grammar());
  ASSERT_TRUE(result.terminated);
  EXPECT_TRUE(json::parse(result.text).is_object()) << result.text;
}

TEST_F(GrammarEngineTest, RegexChoiceAndEbnf) {
  for (int round = 0; round < 5; ++round) {
    const Walk regex = walk(regex_grammar("(ab|c)+[0-9]{2,4}", "r"));
    EXPECT_TRUE(std::regex_match(regex.text, std::regex("(ab|c)+[0-9]{2,4}"))) << regex.text;
    const ordered_json choices = {"yes", "no", "say \"hi\"\n", "\u4e2d"};
    const Walk choice = walk(choice_grammar(choices, "c"));
    EXPECT_NE(std::find(choices.begin(), choices.end(), choice.text), choices.end()) << choice.text;
    const Walk ebnf = walk(ebnf_grammar("root ::= \"(\" root \")\" | [a-c]", "e"));
    EXPECT_TRUE(std::regex_match(ebnf.text, std::regex("\\(*[a-c]\\)*"))) << ebnf.text;
  }
}

TEST_F(GrammarEngineTest, StructuralTagsOfTheCaller) {
  const Walk result = walk(structural_tag_grammar(
      ordered_json::parse(
          R"({"type": "structural_tag", "format": {"type": "tag", "begin": "<tool_call>", "content": {"type": "json_schema", "json_schema": {"type": "null"}}, "end": "</tool_call>"}})"),
      "t"));
  EXPECT_EQ(result.text, "<tool_call>null</tool_call>");
}

ToolSet weather_tools() {
  return ToolSet::parse(ordered_json::parse(
      R"([{"type": "function", "function": {"name": "get_weather", "strict": true, "parameters": {"type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}, "unit": {"enum": ["C", "F"]},
                           "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}},
            "required": ["city", "days", "unit", "where"], "additionalProperties": false}}},
          {"type": "function", "function": {"name": "now"}}])"));
}

TEST_F(GrammarEngineTest, CallsOfTools) {
  const ToolSet tools = weather_tools();
  const json schema = json::parse(tools.find("get_weather")->schema);
  for (const Tokenizer* tokenizer : {&demo_tokenizer(), &fuzz::small_tokenizer()}) {
    const ReplyMarkers markers(*tokenizer);
    GrammarEngine grammars(*tokenizer, stop_ids(*tokenizer), {.compile_time = std::chrono::minutes(4)});
    for (const ToolChoice& choice : {ToolChoice{ToolChoice::Kind::kNamed, "get_weather"},
                                     ToolChoice{ToolChoice::Kind::kRequired, ""}, ToolChoice{ToolChoice::Kind::kAuto, ""}}) {
      const auto spec = tools_grammar(tools, choice, /*parallel_calls=*/false, markers);
      ASSERT_TRUE(spec);
      for (int round = 0; round < test::draws(6, 2); ++round) {
        const auto grammar = grammars.make(*spec, false);
        const Walk result = random_walk(*grammar, *tokenizer, random_, 40);
        SCOPED_TRACE(result.text);
        if (!result.terminated) continue;
        ReplyParser parser(*tokenizer, {.tools = &tools});
        ReplyMessage message;
        for (const ReplyDelta& delta : parser.push(result.ids, result.text)) message.add(delta);
        for (const ReplyDelta& delta : parser.finish()) message.add(delta);
        EXPECT_TRUE(choice.kind == ToolChoice::Kind::kAuto || message.calls.size() == 1U);
        EXPECT_TRUE(choice.kind != ToolChoice::Kind::kNamed || message.content.empty());
        for (const ReplyMessage::Call& call : message.calls) {
          if (call.name != "get_weather") continue;
          EXPECT_EQ(test::invalid(json::parse(call.arguments), schema), "");
        }
      }
    }
  }
}

TEST_F(GrammarEngineTest, ArgumentsStandBetweenSingleLineBreaks) {
  const ToolSet tools = ToolSet::parse(ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}, "required": ["x"]}}}])"));
  const auto spec = tools_grammar(tools, {ToolChoice::Kind::kNamed, "f"}, true, ReplyMarkers(demo_tokenizer()));
  const auto accepts = [&](const std::string& call) {
    const auto grammar = engine().make(spec.value(), false);
    const std::vector<TokenId> ids = demo_tokenizer().encode(call);
    return std::all_of(ids.begin(), ids.end(), [&](TokenId id) { return grammar->accept(id); });
  };
  EXPECT_TRUE(accepts("<tool_call>\n<function=f>\n<parameter=x>\n7\n</parameter>\n</function>\n</tool_call>"));
  EXPECT_FALSE(accepts("<tool_call>\n<function=f>\n<parameter=x>\n7 \n</parameter>\n</function>\n</tool_call>"));
  EXPECT_FALSE(accepts("<tool_call>\n<function=f>\n<parameter=x>\n\n7\n</parameter>\n</function>\n</tool_call>"));
}

TEST_F(GrammarEngineTest, NothingRunsOnInSpaceOrDigits) {
  const ordered_json schema = ordered_json::parse(R"({"properties": {"x": {"type": "integer"}}, "required": ["x"]})");
  const auto accepts = [&](const std::string& text, JsonSpace space) {
    const auto grammar = engine().make(json_schema_grammar(schema, "s", space), false);
    const std::vector<TokenId> ids = demo_tokenizer().encode(text);
    return std::all_of(ids.begin(), ids.end(), [&](TokenId id) { return grammar->accept(id); });
  };
  const std::string most = std::to_string(std::numeric_limits<int64_t>::max());
  for (const JsonSpace space : {JsonSpace::kSingle, JsonSpace::kFixed, JsonSpace::kAny}) {
    EXPECT_TRUE(accepts("{\"x\": " + most + "}", space));
    EXPECT_TRUE(accepts("{\"x\": -" + most + "}", space));
    EXPECT_FALSE(accepts("{\"x\": " + most + "0", space));
    EXPECT_EQ(accepts("{\"x\":7}", space), space != JsonSpace::kFixed);
    EXPECT_EQ(accepts("{\n\"x\" : 7\n}", space), space != JsonSpace::kFixed);
    EXPECT_EQ(accepts("{  \"x\"", space), space == JsonSpace::kAny);
  }
}

TEST_F(GrammarEngineTest, HoldsBehindAThought) {
  const auto grammar = engine().make(choice_grammar({"yes"}, "c"), true);
  for (const TokenId id : demo_tokenizer().encode("I think\nso.</think>\n\n")) EXPECT_TRUE(grammar->accept(id));
  EXPECT_FALSE(grammar->accept(demo_tokenizer().encode("no").front()));
  for (const TokenId id : demo_tokenizer().encode("yes")) EXPECT_TRUE(grammar->accept(id));
  EXPECT_FALSE(grammar->is_terminated());
  EXPECT_TRUE(grammar->accept(*demo_tokenizer().id_of("<|im_end|>")));
  EXPECT_TRUE(grammar->is_terminated());
}

TEST_F(GrammarEngineTest, MarkersAreNoText) {
  const auto grammar = engine().make(json_schema_grammar({{"type", "string"}}, "s"), false);
  ASSERT_TRUE(grammar->accept(*demo_tokenizer().id_of("\"")));
  for (const char* marker : {"<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<tool_response>"})
    EXPECT_FALSE(grammar->accept(*demo_tokenizer().id_of(marker))) << marker;
}

TEST_F(GrammarEngineTest, RefusesWhatItCannotEnforce) {
  const auto refusal = [&](const GrammarSpec& spec) -> std::string {
    try {
      engine().make(spec, false);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(regex_grammar("a(?=b)c", "r")), HasSubstr("structured output: "));
  EXPECT_THAT(refusal(regex_grammar("(a", "r")), HasSubstr("structured output: "));
  EXPECT_THAT(refusal(regex_grammar("a^b", "r")), HasSubstr("cannot be enforced"));
  EXPECT_THAT(refusal(ebnf_grammar("root ::= missing", "e")), HasSubstr("structured output: "));
  EXPECT_THAT(refusal(json_schema_grammar(ordered_json::parse(R"({"type": "integer", "minimum": 5, "maximum": 3})"), "s")),
              HasSubstr("structured output: "));
  EXPECT_THAT(
      refusal(json_schema_grammar(ordered_json::parse(R"({"type": "number", "minimum": 1e-308, "maximum": 2e-308})"), "s")),
      HasSubstr("allows no value"));
  EXPECT_THAT(refusal(structural_tag_grammar(ordered_json::parse(R"({"format": {"type": "nothing"}})"), "t")),
              HasSubstr("structured output: "));
}

TEST_F(GrammarEngineTest, KeepsGrammarsWithinItsBytes) {
  GrammarEngine small(demo_tokenizer(), stop_ids(demo_tokenizer()),
                      {.compile_time = std::chrono::minutes(4), .cache_bytes = 100000});
  for (int i = 0; i < 12; ++i) {
    small.make(regex_grammar("[a-z]+" + std::to_string(i), "r"), false);
    EXPECT_GT(small.cached_bytes(), 0);
    EXPECT_LE(small.cached_bytes(), 100000);
  }
  GrammarEngine tiny(demo_tokenizer(), stop_ids(demo_tokenizer()),
                     {.compile_time = std::chrono::minutes(4), .grammar_bytes = 100});
  EXPECT_THROW(tiny.make(regex_grammar("[a-z]+", "r"), false), Error);
}

/// Which of 300 properties are there, up to 200 of them: far more rules than the schema has bytes.
GrammarSpec exploding_grammar() {
  ordered_json schema = {{"type", "object"}, {"minProperties", 100}, {"maxProperties", 200}};
  for (int i = 0; i < 300; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "integer"}};
  return json_schema_grammar(schema, "s");
}

TEST_F(GrammarEngineTest, StopsACompilationThatTakesTooMuchMemory) {
  GrammarEngine bounded(demo_tokenizer(), stop_ids(demo_tokenizer()),
                        {.compile_time = std::chrono::minutes(4), .compile_bytes = 16 << 20});
  try {
    bounded.make(exploding_grammar(), false);
    ADD_FAILURE() << "nothing bounds it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("to compile the grammar takes too much"));
  }
  EXPECT_TRUE(random_walk(*bounded.make(regex_grammar("[a-c]{3}", "r"), false), demo_tokenizer(), random_).terminated);
}

TEST_F(GrammarEngineTest, StopsACompilationThatTakesTooLong) {
  GrammarEngine hasty(demo_tokenizer(), stop_ids(demo_tokenizer()),
                      {.compile_time = std::chrono::milliseconds(50), .compile_bytes = int64_t{1} << 40});
  EXPECT_THROW(hasty.make(exploding_grammar(), false), Error);
}

TEST_F(GrammarEngineTest, MayBeStoppedAtAnyAllocation) {
  const std::vector<GrammarSpec> specs = {
      json_schema_grammar(
          ordered_json::parse(R"({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-f]+$"},
                                                  "b": {"type": "array", "items": {"$ref": "#"}, "maxItems": 3},
                                                  "c": {"type": "number", "minimum": 0.5}}, "minProperties": 1})"),
          "s"),
      regex_grammar("(ab|c)+[0-9]{2,40}", "r"), ebnf_grammar("root ::= \"(\" root \")\" | [a-c]+", "e"),
      *tools_grammar(weather_tools(), {ToolChoice::Kind::kRequired, ""}, true, ReplyMarkers(fuzz::small_tokenizer()))};
  const Tokenizer& tokenizer = fuzz::small_tokenizer();
  int num_stopped = 0;
  for (double bytes = 1000; bytes < 4e6; bytes *= 1.1) {
    GrammarEngine bounded(tokenizer, stop_ids(tokenizer),
                          {.compile_time = std::chrono::minutes(4), .compile_bytes = static_cast<int64_t>(bytes)});
    for (const GrammarSpec& spec : specs) {
      try {
        bounded.make(spec, false);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("takes too much"));
        ++num_stopped;
      }
    }
  }
  EXPECT_GT(num_stopped, 20);
}

TEST_F(GrammarEngineTest, StopsAMatcherWhoseTextHasTooManyReadings) {
  const auto grammar = engine().make(ebnf_grammar("root ::= s\ns ::= s s | s s s | [a-z ] | \"\"", "e"), false);
  std::vector<uint32_t> mask(static_cast<std::size_t>(demo_tokenizer().size() / 32 + 1));
  const TokenId id = demo_tokenizer().encode("a").front();
  const auto take_many = [&] {
    for (int i = 0; i < 100000; ++i) {
      grammar->fill_mask(mask);
      ASSERT_TRUE(grammar->accept(id));
    }
  };
  try {
    take_many();
    ADD_FAILURE() << "nothing bounds it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("to find what may come next takes too much"));
  }
}

/// Holds a compilation that calls it, from the first call on, until the test lets it go on.
class HeldCompilation {
 public:
  ~HeldCompilation() { let_go(); }
  void operator()() {
    if (!has_begun_.exchange(true)) begun_.set_value();
    released_.wait();
    if (is_unwanted) throw Error(ErrorCode::kCancelled, "the call was cancelled");
  }
  void wait() { ASSERT_EQ(begun_.get_future().wait_for(kTestLimit), std::future_status::ready); }
  void let_go() {
    if (!is_released_.exchange(true)) release_.set_value();
  }

  std::atomic<bool> is_unwanted = false;

 private:
  std::promise<void> begun_, release_;
  const std::shared_future<void> released_ = release_.get_future().share();
  std::atomic<bool> has_begun_ = false, is_released_ = false;
};

TEST_F(GrammarEngineTest, OneCompilationDoesNotHoldUpAnother) {
  GrammarEngine shared(demo_tokenizer(), stop_ids(demo_tokenizer()), {.compile_time = std::chrono::minutes(4)});
  HeldCompilation hold;
  std::thread slow([&] {
    try {
      shared.compile(exploding_grammar(), [&] { hold(); });
      ADD_FAILURE() << "nobody wants it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCancelled) << error.what();
    }
  });
  hold.wait();
  EXPECT_NE(shared.make(regex_grammar("[a-c]{3}", "r"), false), nullptr);
  hold.is_unwanted = true;
  hold.let_go();
  slow.join();
}

TEST_F(GrammarEngineTest, AtItsDeadlineACompilationStops) {
  ManualClock clock;
  GrammarEngine hasty(demo_tokenizer(), stop_ids(demo_tokenizer()),
                      {.compile_time = std::chrono::minutes(4), .compile_bytes = int64_t{1} << 40}, clock);
  int num_looks = 0;
  try {
    hasty.compile(exploding_grammar(), [&] {
      ++num_looks;
      clock.advance(std::chrono::minutes(4));
    });
    ADD_FAILURE() << "nothing bounds it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("takes too much time"));
  }
  EXPECT_EQ(num_looks, 1);
}

TEST_F(GrammarEngineTest, CallersOfOneGrammarCompileItOnce) {
  GrammarEngine shared(demo_tokenizer(), stop_ids(demo_tokenizer()), {.compile_time = std::chrono::minutes(4)});
  const GrammarSpec spec = json_schema_grammar(
      ordered_json::parse(R"({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}})"), "s");
  HeldCompilation hold;
  std::shared_ptr<const CompiledGrammar> first, second;
  std::thread one([&] { first = shared.compile(spec, [&] { hold(); }); });
  hold.wait();
  std::atomic<int> num_looks = 0;
  std::thread two([&] { second = shared.compile(spec, [&] { ++num_looks; }); });
  eventually([&] { return num_looks > 0; }, "the second caller to wait");
  EXPECT_EQ(shared.find(spec), nullptr);
  hold.let_go();
  one.join();
  two.join();
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(first, second);
}

TEST_F(GrammarEngineTest, AGrammarIsFoundWhileItIsHeld) {
  GrammarEngine keeps_none(demo_tokenizer(), stop_ids(demo_tokenizer()),
                           {.compile_time = std::chrono::minutes(4), .cache_bytes = 0});
  const GrammarSpec spec = regex_grammar("[a-c]{3}", "r");
  std::shared_ptr<TokenGrammar> matcher;
  {
    const auto compiled = keeps_none.compile(spec);
    EXPECT_EQ(keeps_none.find(spec), compiled);
    matcher = keeps_none.make(spec, false);
  }
  EXPECT_NE(keeps_none.find(spec), nullptr) << "its matcher holds it";
  matcher.reset();
  EXPECT_EQ(keeps_none.find(spec), nullptr);
  EXPECT_EQ(keeps_none.cached_bytes(), 0);
}

TEST_F(GrammarEngineTest, ManyCallersShareOneEngine) {
  GrammarEngine shared(demo_tokenizer(), stop_ids(demo_tokenizer()), {.compile_time = std::chrono::minutes(4)});
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&shared, i] {
      std::mt19937 random(static_cast<uint32_t>(i));
      for (int round = 0; round < 3; ++round) {
        const auto grammar = shared.make(regex_grammar("[a-c]{3}" + std::to_string(round), "r"), false);
        EXPECT_TRUE(random_walk(*grammar, demo_tokenizer(), random).terminated);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace ferry
