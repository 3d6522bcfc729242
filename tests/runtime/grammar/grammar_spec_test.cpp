#include "runtime/grammar/grammar_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/fuzz/small_tokenizer.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

ordered_json parsed(const char* text) { return ordered_json::parse(text); }

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

std::string schema_refusal(const char* schema) {
  return refusal([&] { enforceable_schema(parsed(schema), "s"); });
}

TEST(EnforceableSchema, WhatIsNotEnforcedIsRefusedWithItsPath) {
  EXPECT_THAT(schema_refusal(R"({"properties": {"a": {"items": {"not": {}}}}})"),
              HasSubstr("s.properties.a.items.not: is not supported"));
  EXPECT_THAT(schema_refusal(R"({"type": "array", "uniqueItems": true})"), HasSubstr("s.uniqueItems"));
  EXPECT_THAT(schema_refusal(R"({"type": "array", "contains": {}})"), HasSubstr("s.contains"));
  EXPECT_THAT(schema_refusal(R"({"type": "object", "if": {}, "then": {}})"), HasSubstr("s.if"));
  EXPECT_THAT(schema_refusal(R"({"type": "object", "dependentRequired": {}})"), HasSubstr("s.dependentRequired"));
  EXPECT_THAT(schema_refusal(R"({"type": "number", "multipleOf": 0.5})"), HasSubstr("s.multipleOf"));
  EXPECT_THAT(schema_refusal(R"({"type": "string", "pattern": "a", "maxLength": 3})"), HasSubstr("s.maxLength"));
  EXPECT_THAT(schema_refusal(R"({"type": "string", "format": "iri"})"), HasSubstr("s.format"));
  EXPECT_THAT(schema_refusal(R"({"allOf": [{}, {}]})"), HasSubstr("s.allOf"));
  EXPECT_THAT(schema_refusal(R"({"anyOf": [{}], "minimum": 3})"), HasSubstr("s.minimum: is not supported beside anyOf"));
  EXPECT_THAT(schema_refusal(R"({"$ref": "#", "type": "object"})"), HasSubstr("s.type: is not supported beside $ref"));
  EXPECT_THAT(schema_refusal(R"({"anyOf": [{"type": "null"}, {"$defs": {"d": {"not": {}}}}]})"),
              HasSubstr("s.anyOf[1].$defs.d.not"));
}

TEST(EnforceableSchema, WhatIsNoSchemaIsRefused) {
  EXPECT_THAT(schema_refusal(R"(3)"), HasSubstr("s: a schema is an object, not 3"));
  EXPECT_THAT(schema_refusal(R"(false)"), HasSubstr("s: false allows no value"));
  EXPECT_THAT(schema_refusal(R"({"type": "text"})"), HasSubstr("s.type: \"text\" is no type"));
  EXPECT_THAT(schema_refusal(R"({"type": []})"), HasSubstr("s.type"));
  EXPECT_THAT(schema_refusal(R"({"enum": []})"), HasSubstr("s.enum: no value is allowed"));
  EXPECT_THAT(schema_refusal(R"({"type": "null", "enum": [1]})"), HasSubstr("s.enum: no value is allowed"));
  EXPECT_THAT(schema_refusal(R"({"properties": []})"), HasSubstr("s.properties: an object is needed"));
  EXPECT_THAT(schema_refusal(R"({"required": [1]})"), HasSubstr("s.required"));
  EXPECT_THAT(schema_refusal(R"({"type": "array", "minItems": -1})"), HasSubstr("s.minItems"));
  EXPECT_THAT(schema_refusal(R"({"type": "array", "maxItems": 1e9})"), HasSubstr("s.maxItems"));
  EXPECT_THAT(schema_refusal(R"({"type": "string", "pattern": "(a{100}){100}"})"),
              HasSubstr("s.pattern: its counts make more than 4096"));
}

TEST(EnforceableSchema, PatternsThatCannotStandInJsonAreRefused) {
  const auto refused = [](const char* pattern) {
    return refusal([&] { enforceable_schema({{"type", "string"}, {"pattern", pattern}}, "s"); });
  };
  for (const char* pattern : {R"(a\"b)", R"(a"b)", R"(a\\b)", R"(\n)", R"([ -~])", R"(["])", R"([\\])", R"(a(?=b))", R"(a^b)",
                              R"(\bword)", R"([a)", R"(\p{L})", R"(a\)"}) {
    EXPECT_THAT(refused(pattern), HasSubstr("s.pattern: ")) << pattern;
  }
  for (const char* pattern : {R"([^a-z])", R"([^\n,]+)", R"(\S\W\D\d\w\s)", R"([a-z\d_.-]{2,5})", R"(^a\.b$)", R"((?:x|y)?)"})
    EXPECT_EQ(refused(pattern), "") << pattern;
}

TEST(EnforceableSchema, HyphensBehindARangeStandForThemselves) {
  const auto written = [](const char* pattern) {
    return enforceable_schema({{"type", "string"}, {"pattern", pattern}}, "s")["pattern"].get<std::string>();
  };
  EXPECT_THAT(written("[a-z0-9-~]"), HasSubstr(R"([a-z0-9\-~])"));
  EXPECT_THAT(written("[+--]"), HasSubstr(R"([+-\-])"));
  EXPECT_THAT(written("[^0-9-_]"), HasSubstr(R"(0-9\-_])"));
}

TEST(EnforceableSchema, OneOfNeedsSchemasThatExcludeEachOther) {
  const auto refused = [](const std::string& branches) {
    const std::string definitions =
        R"("$defs": {"a": {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]}})";
    return !schema_refusal((R"({"oneOf": [)" + branches + "], " + definitions + "}").c_str()).empty();
  };
  const auto object = [](const std::string& properties, const std::string& required, bool is_closed = true) {
    return R"({"type": "object", "properties": {)" + properties + R"(}, "required": [)" + required + "]" +
           (is_closed ? R"(, "additionalProperties": false})" : "}");
  };
  EXPECT_FALSE(refused(R"({"type": "string"}, {"type": ["null", "integer"]}, {"type": "array", "items": {}})"));
  EXPECT_TRUE(refused(R"({"type": "number"}, {"type": "integer"})"));
  EXPECT_FALSE(refused(R"({"enum": [1, "a"]}, {"const": 2}, {"type": "string", "enum": ["b"]})"));
  EXPECT_TRUE(refused(R"({"enum": [1, "a"]}, {"enum": ["a"]})"));
  EXPECT_TRUE(refused(R"({"const": 1.0}, {"type": "integer"})"));
  EXPECT_TRUE(refused(R"({"type": "null"}, {"minLength": 1})")) << "null is valid under the second, too";
  EXPECT_TRUE(refused(R"({"enum": [[1]]}, {"enum": [[2]]})")) << "lists are not compared";
  const auto enumeration = [](int first, int count) {
    std::string values;
    for (int i = first; i < first + count; ++i) values += (values.empty() ? "" : ", ") + std::to_string(i);
    return R"({"enum": [)" + values + "]}";
  };
  EXPECT_FALSE(refused(enumeration(0, 300) + ", " + enumeration(300, 300)));
  EXPECT_TRUE(refused(enumeration(0, 2000) + ", " + enumeration(2000, 2000))) << "four million comparisons are not made";
  // Objects: by a constant, also behind a reference; by a property that the other does not allow.
  EXPECT_FALSE(refused(R"({"type": "null"}, {"$ref": "#/$defs/a"}, )" + object(R"("k": {"const": 2})", R"("k")")));
  EXPECT_FALSE(refused(R"({"$ref": "#/$defs/a"}, )" + object(R"("k": {"const": 2})", "")));
  EXPECT_TRUE(refused(object(R"("k": {"const": 1})", "") + ", " + object(R"("k": {"const": 2})", "")));
  EXPECT_FALSE(refused(object(R"("a": {})", R"("a")") + ", " + object(R"("b": {}, "c": {})", R"("b")")));
  EXPECT_TRUE(refused(object(R"("a": {})", "") + ", " + object(R"("b": {})", "")));
  EXPECT_TRUE(refused(object(R"("a": {})", R"("a")") + ", " + object(R"("a": {}, "b": {})", R"("a")")));
  EXPECT_TRUE(refused(object(R"("a": {}, "b": {})", R"("a", "b")") + ", " + object(R"("a": {})", R"("a")", false)));
  EXPECT_TRUE(refused(object(R"("a": {})", R"("a", "b")", false) + ", " + object(R"("b": {})", R"("b")", false)));
  EXPECT_EQ(enforceable_schema(parsed(R"({"oneOf": [{"type": "null"}, {"type": "boolean"}]})"), "s"),
            parsed(R"({"anyOf": [{"type": "null"}, {"type": "boolean"}]})"));
  EXPECT_EQ(enforceable_schema(parsed(R"({"oneOf": [{"type": "null"}, {}]})"), "s", UnenforcedKeywords::kDrop),
            parsed(R"({"anyOf": [{"type": "null"}, {}]})"));
}

TEST(EnforceableSchema, References) {
  EXPECT_THAT(schema_refusal(R"({"$ref": "https://example.com/a"})"), HasSubstr("is not inside the schema"));
  EXPECT_THAT(schema_refusal(R"({"$ref": "#/$defs/a"})"), HasSubstr("names nothing"));
  EXPECT_THAT(schema_refusal(R"({"$ref": "#"})"), HasSubstr("leads round in a circle"));
  EXPECT_THAT(schema_refusal(R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})"),
              HasSubstr("leads round in a circle"));
  EXPECT_EQ(schema_refusal(R"({"properties": {"next": {"$ref": "#"}}})"), "");
}

TEST(EnforceableSchema, DepthAndNumberAreBounded) {
  std::string deep = "{}";
  for (int i = 0; i < 60; ++i) deep = R"({"items": )" + deep + "}";
  EXPECT_THAT(schema_refusal(deep.c_str()), HasSubstr("nested deeper than 48"));
  const auto many = [] {
    enforceable_schema(parsed(R"({"anyOf": [{}, {}, {}]})"), "s", UnenforcedKeywords::kRefuse, {.schemas = 3});
  };
  EXPECT_THAT(refusal(many), HasSubstr("more than 3 schemas"));
}

TEST(EnforceableSchema, IsWrittenForTheCompiler) {
  const auto rewritten = [](const char* schema) { return enforceable_schema(parsed(schema), "s"); };
  EXPECT_EQ(rewritten(R"({"title": "t", "x-a": 1})"), parsed("{}"));
  EXPECT_EQ(rewritten(R"({"type": "integer", "minLength": 5, "minimum": 3})"),
            parsed(R"({"type": "integer", "minimum": 3, "maximum": 9223372036854775807})"));
  EXPECT_EQ(rewritten(R"({"type": "integer", "exclusiveMaximum": 3})"),
            parsed(R"({"type": "integer", "exclusiveMaximum": 3, "minimum": -9223372036854775807})"));
  EXPECT_EQ(rewritten(R"({"type": "integer", "multipleOf": 3})"), parsed(R"({"type": "integer", "multipleOf": 3})"));
  EXPECT_EQ(rewritten(R"({"const": 5})"), parsed(R"({"enum": [5]})"));
  EXPECT_EQ(rewritten(R"({"type": "string", "enum": ["a", 1]})"), parsed(R"({"enum": ["a"]})"));
  EXPECT_EQ(rewritten(R"({"type": ["string", "null"], "pattern": "a"})"),
            parsed("{\"anyOf\": [{\"type\": \"string\", \"pattern\": \"(a)\u00e9{0}\"}, {\"type\": \"null\"}]}"));
  EXPECT_EQ(rewritten(R"({"type": "array"})"), parsed(R"({"type": "array", "items": {}})"));
  EXPECT_EQ(rewritten(R"({"type": "object", "required": ["a"]})"),
            parsed(R"({"type": "object", "required": ["a"], "additionalProperties": true, "properties": {"a": {}}})"));
  EXPECT_EQ(rewritten(R"({"allOf": [{"type": "null"}]})"), parsed(R"({"type": "null"})"));
  EXPECT_EQ(enforceable_schema(parsed(R"({"type": "array", "uniqueItems": true, "items": {"not": {}}})"), "s",
                               UnenforcedKeywords::kDrop),
            parsed(R"({"type": "array", "items": {}})"));
}

TEST(GrammarSpec, ResponseFormats) {
  EXPECT_EQ(parse_response_format(nullptr), std::nullopt);
  EXPECT_EQ(parse_response_format(parsed(R"({"type": "text"})")), std::nullopt);
  EXPECT_EQ(parse_response_format(parsed(R"({"type": "json_object"})")), json_object_grammar());
  const auto spec =
      parse_response_format(parsed(R"({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "null"}}})"));
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->text, R"({"type":"null"})");
  for (const auto& [format, why] :
       {std::pair(R"({"type": "xml"})", "response_format.type"),
        {R"({})", "response_format.type"},
        {R"({"type": "json_schema"})", "response_format.json_schema"},
        {R"({"type": "json_schema", "json_schema": {}})", "response_format.json_schema.schema"},
        {R"({"type": "json_schema", "json_schema": {"schema": {"not": {}}}})", "json_schema.schema.not"},
        {R"({"type": "structural_tag"})", "response_format"}}) {
    EXPECT_THAT(refusal([&, text = format] { parse_response_format(parsed(text)); }), HasSubstr(why));
  }
}

TEST(GrammarSpec, StructuredOutputs) {
  EXPECT_EQ(parse_structured_outputs(nullptr), std::nullopt);
  EXPECT_EQ(parse_structured_outputs(parsed(R"({"json": "{\"type\": \"null\"}"})"))->text, R"({"type":"null"})");
  EXPECT_EQ(parse_structured_outputs(parsed(R"({"regex": "a+"})"))->kind, GrammarSpec::Kind::kRegex);
  EXPECT_EQ(parse_structured_outputs(parsed(R"({"choice": ["a\"b", "c\n"]})"))->text, R"(root ::= "a\"b" | "c\x0a")");
  const auto space_of = [](const char* outputs) { return parse_structured_outputs(parsed(outputs)).value().space; };
  EXPECT_EQ(space_of(R"({"json": {}})"), JsonSpace::kSingle);
  EXPECT_EQ(space_of(R"({"json": {"type": "null"}, "disable_any_whitespace": true})"), JsonSpace::kFixed);
  EXPECT_EQ(space_of(R"({"json_object": true, "disable_any_whitespace": false})"), JsonSpace::kAny);
  for (const auto& [outputs, why] : {std::pair(R"({})", "one kind of constraints"),
                                     {R"({"json": {}, "regex": "a"})", "one kind of constraints"},
                                     {R"({"regex": ""})", "structured_outputs.regex: is empty"},
                                     {R"({"choice": []})", "structured_outputs.choice"},
                                     {R"({"choice": [1]})", "structured_outputs.choice[0]"},
                                     {R"({"json": "{"})", "structured_outputs.json"},
                                     {R"({"json": {}, "disable_any_whitespace": 1})", "disable_any_whitespace"},
                                     {R"({"regex": "a", "whitespace_pattern": "x"})", "whitespace_pattern"}}) {
    EXPECT_THAT(refusal([&, text = outputs] { parse_structured_outputs(parsed(text)); }), HasSubstr(why));
  }
}

ToolSet tools(bool strict) {
  ordered_json list = parsed(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}}},
          {"type": "function", "function": {"name": "g"}}])");
  list[0]["function"]["strict"] = strict;
  return ToolSet::parse(list);
}

TEST(GrammarSpec, ToolsAreForcedWhereTheChoiceSaysSo) {
  const ReplyMarkers markers(fuzz::small_tokenizer_with_markers());
  using Kind = ToolChoice::Kind;
  EXPECT_EQ(tools_grammar(tools(false), {.kind = Kind::kAuto}, true, markers), std::nullopt);
  EXPECT_EQ(tools_grammar(tools(true), {.kind = Kind::kNone}, true, markers), std::nullopt);
  EXPECT_EQ(tools_grammar({}, {.kind = Kind::kNone}, true, markers), std::nullopt);
  const auto named = tools_grammar(tools(false), {.kind = Kind::kNamed, .name = "g"}, true, markers);
  EXPECT_THAT(named->text, HasSubstr("<function=g>"));
  EXPECT_THAT(named->text, testing::Not(HasSubstr("<function=f>")));
  EXPECT_THAT(tools_grammar(tools(false), {.kind = Kind::kRequired}, false, markers)->text,
              testing::AllOf(HasSubstr(R"("at_least_one":true)"), HasSubstr(R"("stop_after_first":true)")));
  EXPECT_THAT(refusal([&] { tools_grammar(tools(true), {.kind = Kind::kAuto}, true, markers); }),
              HasSubstr("tools.f.parameters.properties.a.uniqueItems"));
}

}  // namespace
}  // namespace ferry
