#include "tests/runtime/text/reply/transcripts.h"

#include <nlohmann/json.hpp>
#include <ostream>

namespace ferry {

void PrintTo(const ReplyMessage& message, std::ostream* out) {
  *out << "reasoning " << nlohmann::json(message.reasoning) << ", content " << nlohmann::json(message.content);
  for (const ReplyMessage::Call& call : message.calls) *out << ", " << call.name << " " << call.arguments;
}

}  // namespace ferry

namespace ferry::test {

const ToolSet& transcript_tools() {
  static const ToolSet tools = ToolSet::parse(nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
      "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "write_file", "parameters": {
      "type": "object", "$defs": {"mode": {"enum": ["a", "w"]}},
      "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"$ref": "#/$defs/mode"},
                     "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "any": {},
                     "flag": {"type": "boolean"}, "scale": {"type": "number"}, "lines": {"type": "array"},
                     "meta": {"type": "object"}, "mixed": {"type": ["string", "integer"]}, "nothing": {"type": "null"}}}}},
    {"type": "function", "function": {"name": "now"}}
  ])"));
  return tools;
}

namespace {

const std::vector<Transcript> kTranscripts = {
    {"content", false, "The river rose.\n", {"", "The river rose.\n", {}}},
    {"content with spaces in front", false, "\n\n The river", {"", "\n\n The river", {}}},
    {"nothing", false, "", {}},
    {"thought and content", true, "I think\nso.\n</think>\n\nYes.", {"I think\nso.", "Yes.", {}}},
    {"thought that was opened by the reply", false, "<think>\nHm.\n</think>\n\nYes.", {"Hm.", "Yes.", {}}},
    {"empty thought", false, "<think>\n\n</think>\n\nYes.", {"", "Yes.", {}}},
    {"a second opening", true, "<think>\nHm.</think>Yes.", {"Hm.", "Yes.", {}}},
    {"a second end", true, "Hm.\n</think>\n</think>\n\nYes.", {"Hm.", "Yes.", {}}},
    {"an end without a beginning", false, "</think>\n\nYes.", {"", "Yes.", {}}},
    {"a thought that is cut", true, "I think that", {"I think that", "", {}}},
    {"an opening after content", false, "The tag <think> opens", {"", "The tag <think> opens", {}}},
    {"angle brackets",
     true,
     "a < b </thin> <t\n</think>x <y> </tool <function <",
     {"a < b </thin> <t", "x <y> </tool <function <", {}}},
    {"one call",
     false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
     {"", "", {{"get_weather", R"({"city": "Paris"})"}}}},
    {"thought, content and call",
     true,
     "I must look.\n</think>\n\nLet me see.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSt. "
     "\"John's\"\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     {"I must look.", "Let me see.", {{"get_weather", R"({"city": "St. \"John's\"", "days": 3})"}}}},
    {"two calls",
     true,
     "</think>\n\n<tool_call>\n<function=now>\n</function>\n</"
     "tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\n"
     "Oslo\n</parameter>\n</function>\n</tool_call>\n",
     {"", "", {{"now", "{}"}, {"get_weather", R"({"city": "Oslo"})"}}}},
    {"two functions in one call",
     false,
     "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>",
     {"", "", {{"now", "{}"}, {"now", "{}"}}}},
    {"content around calls",
     false,
     "First.\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n\nThen.\n",
     {"", "First.\n\nThen.\n", {{"now", "{}"}}}},
    {"a call inside a thought",
     true,
     "So I call\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
     {"So I call", "", {{"now", "{}"}}}},
    {"no tool_call",
     false,
     "I look.\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
     {"", "I look.", {{"get_weather", R"({"city": "Rome"})"}}}},
    {"no tool_call and no tool",
     false,
     "Write <function=foo> and </function>.",
     {"", "Write <function=foo> and </function>.", {}}},
    {"an unknown tool",
     false,
     "<tool_call>\n<function=foo>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
     {"", "", {{"foo", R"({"n": "5"})"}}}},
    {"no call after all", false, "<tool_call>\nis a tag.\n</tool_call>", {"", "<tool_call>\nis a tag.\n", {}}},
    {"noise before the function",
     false,
     "<tool_call>\nHere:\n<function=now>\n</function>\n</tool_call>",
     {"", "<tool_call>\nHere:", {{"now", "{}"}}}},
    {"an empty call", false, "Hm. <tool_call>\n</tool_call>", {"", "Hm. ", {}}},
    {"tool_call twice",
     false,
     "<tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
     {"", "", {{"now", "{}"}}}},
    {"the call's end inside the name", false, "<tool_call>\n<function=now</tool_call>Yes.", {"", "Yes.", {{"now", "{}"}}}},
    {"the function's end inside the name",
     false,
     "<tool_call>\n<function=now</function>\n</tool_call>",
     {"", "", {{"now", "{}"}}}},
    {"a name that ends with its line",
     false,
     "<tool_call>\n<function=get_weather\n<parameter=city\nBonn\n</parameter>\n</function>\n</tool_call>",
     {"", "", {{"get_weather", R"({"city": "Bonn"})"}}}},
    {"the next call inside the name",
     false,
     "<tool_call>\n<function=now<tool_call>\n<function=get_weather>\n</function>\n</tool_call>",
     {"", "", {{"now", "{}"}, {"get_weather", "{}"}}}},
    {"half a name", false, "<tool_call>\n<function=no</tool_call>", {"", "<tool_call>\n<function=no", {}}},
    {"the call's end inside the arguments",
     false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nKiel\n</tool_call>ok",
     {"", "ok", {{"get_weather", R"({"city": "Kiel"})"}}}},
    {"the next call inside the arguments",
     false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nKiel\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
     {"", "", {{"get_weather", R"({"city": "Kiel"})"}, {"now", "{}"}}}},
    {"the next function inside the arguments",
     false,
     "<tool_call>\n<function=get_weather>\n<function=now>\n</function>\n</tool_call>",
     {"", "", {{"get_weather", "{}"}, {"now", "{}"}}}},
    {"no end of a parameter",
     false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nKiel\n<parameter=days>\n2\n</function>\n</tool_call>",
     {"", "", {{"get_weather", R"({"city": "Kiel", "days": 2})"}}}},
    {"no line breaks",
     false,
     "<tool_call><function=get_weather><parameter=city>Kiel</parameter><parameter=days>2</parameter></function></tool_call>",
     {"", "", {{"get_weather", R"({"city": "Kiel", "days": 2})"}}}},
    {"values of many lines",
     false,
     "<tool_call>\n<function=write_file>\n<parameter=path>\n/tmp/a\\b\n</parameter>\n<parameter=content>\n\n#include "
     "<x>\n\tif (a</b> < c) "
     "{ \"<parameters\" }\n\n</parameter>\n</function>\n</tool_call>",
     {"",
      "",
      {{"write_file", R"({"path": "/tmp/a\\b", "content": "\n#include <x>\n\tif (a</b> < c) { \"<parameters\" }\n"})"}}}},
    {"a thought's tags in a value",
     false,
     "<tool_call>\n<function=write_file>\n<parameter=content>\na <think>b</think> c\n</parameter>\n</function>\n</tool_call>",
     {"", "", {{"write_file", R"({"content": "a <think>b</think> c"})"}}}},
    {"values by type",
     false,
     "<tool_call>\n<function=write_file>\n<parameter=flag>\nTrue\n</parameter>\n<parameter=scale>\n 1.50 \n</parameter>\n"
     "<parameter=lines>\n[1,\n \"two\"]\n</parameter>\n<parameter=meta>\n{\"a\": "
     "{}}\n</parameter>\n<parameter=mode>\nw\n</parameter>\n"
     "<parameter=nothing>\nNone\n</parameter>\n<parameter=mixed>\n12\n</parameter>\n<parameter=any>\n12\n</parameter>\n"
     "<parameter=other>\ntrue\n</parameter>\n</function>\n</tool_call>",
     {"",
      "",
      {{"write_file",
        "{\"flag\": true, \"scale\": 1.50, \"lines\": [1,\n \"two\"], \"meta\": {\"a\": {}}, \"mode\": \"w\", "
        "\"nothing\": null, \"mixed\": 12, \"any\": \"12\", \"other\": \"true\"}"}}}},
    {"values that are not of their type",
     false,
     "<tool_call>\n<function=write_file>\n<parameter=flag>\nmaybe\n</parameter>\n<parameter=scale>\n1,5\n</parameter>\n"
     "<parameter=lines>\n[1,\n</parameter>\n<parameter=meta>\n{'a': 1}\n</parameter>\n<parameter=mixed>\n1.5\n</parameter>\n"
     "</function>\n</tool_call>",
     {"", "", {{"write_file", R"({"flag": "maybe", "scale": "1,5", "lines": "[1,", "meta": "{'a': 1}", "mixed": "1.5"})"}}}},
    {"strings that may be null",
     false,
     "<tool_call>\n<function=write_file>\n<parameter=note>\nnull\n</parameter>\n</"
     "function>\n<function=write_file>\n<parameter=note>\n"
     "nullable "
     "5\n</parameter>\n</function>\n<function=write_file>\n<parameter=note>\n5\n</parameter>\n</function>\n</tool_call>",
     {"",
      "",
      {{"write_file", R"({"note": null})"}, {"write_file", R"({"note": "nullable 5"})"}, {"write_file", R"({"note": "5"})"}}}},
    {"a repeated key",
     false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nA, \"b\": {\n</parameter>\n<parameter=days>\n1\n</parameter>\n"
     "<parameter=city>\nB}\n</parameter>\n</function>\n</tool_call>",
     {"", "", {{"get_weather", R"({"city": "B}", "days": 1})"}}}},
    {"a call that is cut in a value",
     false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar\n</para",
     {"", "", {{"get_weather", R"({"city": "Par"})"}}}},
    {"a call that is cut between values",
     false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<param",
     {"", "", {{"get_weather", R"({"city": "Paris"})"}}}},
    {"a call that is cut in a parameter's name",
     false,
     "<tool_call>\n<function=get_weather>\n<parameter=ci",
     {"", "", {{"get_weather", "{}"}}}},
    {"a call that is cut in its name", false, "So:\n<tool_call>\n<function=get_wea", {"", "So:", {}}},
    {"a call that is cut before its name", false, "So:\n<tool_call>\n<func", {"", "So:", {}}},
    {"a name without tool_call that is cut", false, "So: <function=get_wea", {"", "So: <function=get_wea", {}}},
    {"a stray end of a parameter",
     false,
     "<tool_call>\n<function=now>\n</parameter>\nx<\n</function>\n</parameter>\n</tool_call>",
     {"", "", {{"now", "{}"}}}},
    {"a parameter without a name",
     false,
     "<tool_call>\n<function=now>\n<parameter=>\n5\n</parameter>\n</function>\n</tool_call>",
     {"", "", {{"now", "{}"}}}},
    {"no end of a call", false, "<tool_call>\n<function=now>\n</function>\n\nDone.", {"", "Done.", {{"now", "{}"}}}},
    {"other scripts",
     true,
     "Überlegung \u4e2d\u6587\n</think>\n\n\u4f60\u597d \U0001F600 <tool_call>\n<function=get_weather>\n<parameter=city>\n"
     "\u5317\u4eac \U0001F600\n</parameter>\n</function>\n</tool_call>",
     {"Überlegung \u4e2d\u6587", "\u4f60\u597d \U0001F600", {{"get_weather", "{\"city\": \"\u5317\u4eac \U0001F600\"}"}}}},
};

}  // namespace

std::span<const Transcript> transcripts() { return kTranscripts; }

}  // namespace ferry::test
