#include "runtime/text/reply/tool_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/text/reply/arguments_writer.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

ordered_json function(const std::string& name, const ordered_json& parameters = nullptr) {
  return {{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}};
}

std::string refusal(const ordered_json& tools, const ToolLimits& limits = {}) {
  try {
    ToolSet::parse(tools, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(ToolSet, ToolsAreFoundByName) {
  ordered_json list = ordered_json::array({function("a", {{"type", "object"}}), function("b.c/d-e")});
  list[0]["function"]["strict"] = true;
  const ToolSet tools = ToolSet::parse(list);
  ASSERT_EQ(tools.tools().size(), 2U);
  EXPECT_TRUE(tools.find("a")->strict);
  EXPECT_EQ(tools.find("a")->schema, R"({"type":"object"})");
  EXPECT_EQ(tools.find("b.c/d-e")->schema, "{}");
  EXPECT_EQ(tools.find("b"), nullptr);
  EXPECT_TRUE(ToolSet::parse(nullptr).empty());
}

TEST(ToolSet, WhatIsWrongIsNamed) {
  EXPECT_THAT(refusal(ordered_json::array()), HasSubstr("must not be an empty array"));
  EXPECT_THAT(refusal({{"type", "function"}}), HasSubstr("tools: a list is needed"));
  EXPECT_THAT(refusal({function("a"), {{"type", "retrieval"}}}), HasSubstr("tools[1].type"));
  EXPECT_THAT(refusal(ordered_json::array({{{"type", "function"}}})), HasSubstr("tools[0].function"));
  EXPECT_THAT(refusal(ordered_json::array({function("")})), HasSubstr("tools[0].function.name: is empty"));
  EXPECT_THAT(refusal(ordered_json::array({function("a b")})), HasSubstr("white space"));
  EXPECT_THAT(refusal(ordered_json::array({function("a>")})), HasSubstr("white space"));
  EXPECT_THAT(refusal(ordered_json::array({function(std::string(129, 'n'))})), HasSubstr("129 bytes"));
  EXPECT_THAT(refusal({function("a"), function("a")}), HasSubstr("tools[1].function.name: 'a' is there twice"));
  EXPECT_THAT(refusal(ordered_json::array({function("a", "x")})), HasSubstr("tools[0].function.parameters"));
  EXPECT_THAT(refusal({function("a"), function("b")}, {.tools = 1}), HasSubstr("there are 2; allowed: at most 1"));
  EXPECT_THAT(refusal(ordered_json::array({function("a", {{"description", std::string(50, 'x')}})}), {.schema_bytes = 40}),
              HasSubstr("more than 40 bytes"));
}

JsonTypes types(const char* property, const char* defs = "{}") {
  const ordered_json schema = {
      {"type", "object"}, {"properties", {{"p", ordered_json::parse(property)}}}, {"$defs", ordered_json::parse(defs)}};
  return ToolSet::parse(ordered_json::array({function("f", schema)})).find("f")->types_of("p");
}

TEST(ToolSet, TypesOfArguments) {
  EXPECT_EQ(types("{}"), 0);
  EXPECT_EQ(types("true"), 0);
  EXPECT_EQ(types(R"({"type": "string"})"), kJsonString);
  EXPECT_EQ(types(R"({"type": "integer"})"), kJsonInteger);
  EXPECT_EQ(types(R"({"type": ["string", "null"]})"), kJsonString | kJsonNull);
  EXPECT_EQ(types(R"({"enum": ["a", 1, null]})"), kJsonString | kJsonInteger | kJsonNull);
  EXPECT_EQ(types(R"({"const": false})"), kJsonBoolean);
  EXPECT_EQ(types(R"({"anyOf": [{"type": "array"}, {"type": "object"}]})"), kJsonArray | kJsonObject);
  EXPECT_EQ(types(R"({"oneOf": [{"type": "null"}, {}]})"), kJsonString | kJsonNull);
  EXPECT_EQ(types(R"({"allOf": [{"minLength": 1}, {"type": "string"}]})"), kJsonString);
  EXPECT_EQ(types(R"({"properties": {}})"), kJsonObject);
  EXPECT_EQ(types(R"({"items": {}})"), kJsonArray);
  EXPECT_EQ(types(R"({"type": "text"})"), 0);
}

/// What an argument of the schema `property` is in JSON whose text is `value`.
std::string written(const char* property, const std::string& value) {
  const ordered_json schema = {
      {"type", "object"}, {"properties", {{"p", ordered_json::parse(property)}}}, {"$defs", {{"d", {{"enum", {"A"}}}}}}};
  const ToolSet tools = ToolSet::parse(ordered_json::array({function("f", schema)}));
  ArgumentsWriter writer(tools.find("f"));
  std::string out;
  writer.begin("p", out);
  for (const char c : value) writer.value(std::string_view(&c, 1), out);
  writer.end(out);
  writer.close(out);
  return out;
}

TEST(ToolSet, ListedStringsAreMeantWithoutTheSpaceAroundThem) {
  EXPECT_EQ(written(R"({"enum": ["C", "F"]})", " C"), R"({"p": "C"})");
  EXPECT_EQ(written(R"({"enum": ["C", "F"]})", "F\n"), R"({"p": "F"})");
  EXPECT_EQ(written(R"({"enum": ["C", " C"]})", " C"), R"({"p": " C"})") << "the very text goes first";
  EXPECT_EQ(written(R"({"enum": ["C", "F"]})", " K"), R"({"p": " K"})") << "no choice";
  EXPECT_EQ(written(R"({"type": "string", "const": "C"})", "C "), R"({"p": "C"})");
  EXPECT_EQ(written(R"({"enum": ["C", 1, null]})", " 1"), R"({"p": 1})");
  EXPECT_EQ(written(R"({"enum": ["C", 1, null]})", " C"), R"({"p": "C"})");
  EXPECT_EQ(written(R"({"$ref": "#/$defs/d"})", " A"), R"({"p": "A"})");
  EXPECT_EQ(written(R"({"type": "string"})", " C"), R"({"p": " C"})");
}

TEST(ToolSet, TypesBehindReferences) {
  EXPECT_EQ(types(R"({"$ref": "#/$defs/a"})", R"({"a": {"$ref": "#/$defs/b"}, "b": {"type": "boolean"}})"), kJsonBoolean);
  EXPECT_EQ(types(R"({"$ref": "#/$defs/none"})"), 0);
  EXPECT_EQ(types(R"({"$ref": "https://example.com"})"), 0);
  EXPECT_EQ(types(R"({"$ref": "#/~9"})"), 0);
  EXPECT_EQ(types(R"({"$ref": "#/$defs/a"})", R"({"a": {"$ref": "#/$defs/a"}})"), 0);
  ordered_json branches = ordered_json::array();
  for (int i = 0; i < 40; ++i) branches.push_back({{"$ref", "#/$defs/a"}});  // 40^16 schemas, if one looked at all
  EXPECT_EQ(types(R"({"$ref": "#/$defs/a"})", ordered_json({{"a", {{"anyOf", branches}}}}).dump().c_str()), kJsonString);
}

TEST(ToolSet, TypesOfOtherArguments) {
  const ordered_json schema = ordered_json::parse(
      R"({"$ref": "#/$defs/args", "$defs": {"args": {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "number"}}}})");
  const ToolSet tools = ToolSet::parse(ordered_json::array({function("f", schema)}));
  EXPECT_EQ(tools.find("f")->types_of("a"), kJsonNull);
  EXPECT_EQ(tools.find("f")->types_of("b"), kJsonInteger | kJsonNumber);
}

TEST(ToolChoice, WhatMayBeChosen) {
  const ToolSet tools = ToolSet::parse(ordered_json::array({function("a")}));
  EXPECT_EQ(ToolChoice::parse(nullptr, tools).kind, ToolChoice::Kind::kAuto);
  EXPECT_EQ(ToolChoice::parse(nullptr, {}).kind, ToolChoice::Kind::kNone);
  EXPECT_EQ(ToolChoice::parse("none", {}).kind, ToolChoice::Kind::kNone);
  EXPECT_EQ(ToolChoice::parse("required", tools).kind, ToolChoice::Kind::kRequired);
  const ToolChoice named = ToolChoice::parse({{"type", "function"}, {"function", {{"name", "a"}}}}, tools);
  EXPECT_EQ(named.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(named.name, "a");
  EXPECT_THROW(ToolChoice::parse("auto", {}), Error);
  EXPECT_THROW(ToolChoice::parse("any", tools), Error);
  EXPECT_THROW(ToolChoice::parse({{"type", "function"}, {"function", {{"name", "b"}}}}, tools), Error);
  EXPECT_THROW(ToolChoice::parse({{"type", "allowed_tools"}}, tools), Error);
}

}  // namespace
}  // namespace ferry
