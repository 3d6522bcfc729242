#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/text/jinja/json_values.h"
#include "runtime/text/jinja/template.h"
#include "tests/support/draws.h"
#include "tests/support/source_folder.h"

namespace ferry::jinja {
namespace {

using nlohmann::ordered_json;

const std::filesystem::path kGolden = test::source_folder() / "tests/golden/chat_templates";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string render(std::string_view text, const ordered_json& variables = ordered_json::object(),
                   const Template::Surroundings& surroundings = {}) {
  return Template::parse(text, surroundings.limits)
      .render(
          [&](Heap& heap) {
            Template::Variables values;
            for (const auto& [name, value] : variables.items()) values.emplace_back(name, value_of(value, heap));
            return values;
          },
          surroundings);
}

std::string error_of(std::string_view text, const ordered_json& variables = ordered_json::object(),
                     const Template::Surroundings& surroundings = {}) {
  try {
    render(text, variables, surroundings);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Jinja, DoesWhatPythonsDoes) {
  const ordered_json golden = ordered_json::parse(read(kGolden / "generated.json"));
  ASSERT_GE(golden["cases"].size(), 2000U);
  for (const ordered_json& golden_case : golden["cases"]) {
    const auto text = golden_case["t"].get<std::string>();
    const ordered_json& variables = golden["variables"][golden_case["v"].get<std::size_t>()];
    if (golden_case.contains("o")) {
      std::string output;
      EXPECT_NO_THROW(output = render(text, variables)) << text;
      EXPECT_EQ(output, golden_case["o"].get<std::string>()) << text;
      continue;
    }
    const std::string error = error_of(text, variables);
    EXPECT_NE(error, "") << text;
    if (golden_case["e"].is_string()) {
      EXPECT_EQ(error, one_line(golden_case["e"].get<std::string>())) << text;
    }
  }
}

TEST(Jinja, RendersTheTemplateOfQwen3_5) {
  const std::string text = read(kGolden / "qwen3_5.jinja");
  const ordered_json cases = ordered_json::parse(read(kGolden / "cases.json"));
  std::ifstream outputs(kGolden / "ref.jsonl");
  std::string line;
  std::size_t num_cases = 0;
  while (std::getline(outputs, line)) {
    const ordered_json reference = ordered_json::parse(line);
    const ordered_json& one = cases.at(num_cases++);
    ASSERT_EQ(one["name"], reference["name"]);
    if (reference.contains("out")) {
      EXPECT_EQ(render(text, one["ctx"]), reference["out"].get<std::string>()) << one["name"];
    } else {
      EXPECT_NE(error_of(text, one["ctx"]), "") << one["name"];
    }
  }
  EXPECT_EQ(num_cases, cases.size());
  EXPECT_EQ(num_cases, 16U);
}

TEST(Jinja, NamesTheLineOfAnError) {
  EXPECT_EQ(error_of("a\n{{ 1 }}\n{% if x %}"), "the chat template, line 3: 'if' has no end");
  EXPECT_EQ(error_of("a\r\nb\rc\n{{ x.y }}"), "the chat template, line 4: 'x' is undefined");
  EXPECT_EQ(error_of("{{ 1\n+\n'a' }}"), "the chat template, line 2: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(error_of("{% macro f() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ f() }}"), "the chat template, line 2: division by zero");
  EXPECT_EQ(error_of("\n{{ m.a.b }}", {{"m", ordered_json::object()}}),
            "the chat template, line 2: 'dict object' has no attribute 'a'");
  EXPECT_EQ(error_of("{{ 'a'\n| nope }}"), "the chat template, line 2: there is no filter 'nope'");
}

TEST(Jinja, RefusesTagsOfOtherFilesByName) {
  for (const char* tag : {"include 'a'", "import 'a' as b", "from 'a' import b", "extends 'a'", "block a"}) {
    const std::string name = std::string(tag).substr(0, std::string(tag).find(' '));
    EXPECT_EQ(error_of("\n{% " + std::string(tag) + " %}"),
              "the chat template, line 2: the tag '" + name + "' is not supported");
  }
}

TEST(Jinja, RaisesWithTheTemplatesWords) {
  EXPECT_EQ(error_of("\n{{ raise_exception('No user query found.') }}"), "No user query found.");
  try {
    render("{{ raise_exception('x') }}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
}

TEST(Jinja, TellsTheTime) {
  const std::time_t noon = 1'767'960'000;  // 2026-01-09 12:00:00 UTC
  std::tm local{};
  localtime_r(&noon, &local);
  std::array<char, 32> expected{};
  std::strftime(expected.data(), expected.size(), "%d %b %Y %H:%M", &local);
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y %H:%M') }}", ordered_json::object(), {.now = noon}), expected.data());
  EXPECT_NE(error_of("{{ strftime_now('%999999999d') }}"), "");
  EXPECT_NE(error_of("{{ strftime_now('%d' * 200) }}"), "");
}

TEST(Jinja, IntegersOfJsonStayExact) {
  EXPECT_EQ(render("{{ a | tojson }} {{ a + 1 }} {{ b }}", {{"a", 18446744073709551615ULL}, {"b", INT64_MIN}}),
            "18446744073709551615 18446744073709551616 -9223372036854775808");
  EXPECT_NE(error_of("{{ 2 ** 200 }}"), "");
  EXPECT_NE(error_of("{{ 2 ** 99 * 2 ** 99 }}"), "");
}

TEST(Jinja, MalformedTextIsReplaced) {
  EXPECT_EQ(render("\xFF{{ a[::-1] }}", {{"a", "x\xC3y"}}), "\xEF\xBF\xBDy\xEF\xBF\xBDx");
}

TEST(Jinja, CallsBack) {
  int num_calls = 0;
  const std::function<void()> check_in = [&] {
    if (++num_calls == 3) throw Error(ErrorCode::kCancelled, "enough");
  };
  EXPECT_EQ(error_of("{% for i in range(90000) %}{{ i }}{% endfor %}", ordered_json::object(), {.check_in = check_in}),
            "enough");
  EXPECT_EQ(num_calls, 3);
}

std::string times(int count, const char* text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// Each would take all memory, all stack or all time.
TEST(Jinja, HostileTemplatesEndWithALine) {
  const std::string loop = "{% for i in range(99999) %}";
  const std::string space = "{% set ns = namespace(v='a') %}";
  const std::pair<std::string, std::string> hostile[] = {
      {loop + loop + "{% endfor %}{% endfor %}", "steps"},
      {"{{ 'abc' * 10 ** 12 }}", "MiB"},
      {"{{ [1] * 10 ** 12 }}", "MiB"},
      {"{{ 'a' * 10 ** 20 }}", "MiB"},
      {space + loop + "{% set ns.v = ns.v + ns.v %}{% endfor %}", "MiB"},
      {space + loop + "{% set ns.v = [ns.v, ns.v] %}{% endfor %}", "nested deeper"},
      {space + "{% for i in range(90) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}{{ ns.v }}", "steps"},
      {space + "{% for i in range(90) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}{{ ns.v | tojson }}", "steps"},
      {"{% set ns = namespace(v=1, w=1) %}{% for i in range(90) %}{% set ns.v = [ns.v, ns.v] %}{% set ns.w = [ns.w, ns.w] %}{% "
       "endfor %}"
       "{{ ns.v == ns.w }}",
       "steps"},
      {space + "{% for i in range(90) %}{% set ns.v = (ns.v, ns.v) %}{% endfor %}{{ {ns.v: 1} }}", "steps"},
      {space + "{% set ns.v = ns %}{{ ns }}", "holds itself"},
      {space + "{% set ns.v = [ns] %}{{ ns.v }}", "holds itself"},
      {space + loop + "{% set ns.v = {'a': ns.v}.get %}{% endfor %}", "nested"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper"},
      {"{% macro f() %}{{ caller }}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}", "nested deeper"},
      {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested deeper"},
      {"{% macro f() %}{% for i in range(9) %}{{ f() ~ f() }}{% endfor %}{% endmacro %}{{ f() }}", "nested deeper"},
      {"{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}", "nested deeper"},
      {"{{ " + std::string(100'000, '[') + std::string(100'000, ']') + " }}", "nested deeper"},
      {"{{ 1" + std::string(100'000, '-') + "1 }}", "nested deeper"},
      {"{{ a" + times(10'000, " + a") + " }}", "nested deeper"},
      {"{{ a" + times(10'000, ".a") + " }}", "nested deeper"},
      {"{{ a" + times(10'000, "|e") + " }}", "nested deeper"},
      {"{{ " + times(10'000, "not ") + "a }}", "nested deeper"},
      {times(10'000, "{% if a %}"), "nested deeper"},
      {std::string(2 << 20, 'a'), "bytes"},
      {"{{ range(10 ** 9) }}", "Range too big"},
      {"{{ '%999999999d' % 1 }}", "width"},
      {"{{ '{:999999999}'.format(1) }}", "width"},
      {"{{ '%.999999999f' % 1 }}", "precision"},
      {"{{ 'a'.center(10 ** 15) }}", "MiB"},
      {"{{ 'a'.zfill(10 ** 15) }}", "MiB"},
      {"{{ 'a' | indent(10 ** 15) }}", "MiB"},
      {"{{ 'a' | center(10 ** 15) }}", "MiB"},
      {"{{ [1] | batch(10 ** 15, 0) | list }}", "MiB"},
      {"{{ [1] | slice(10 ** 15) | list }}", "MiB"},
      {"{{ ('a' * 10 ** 6).replace('', 'b' * 10 ** 6) }}", "MiB"},
      {"{{ ('a,' * 10 ** 6).split(',') | join('b' * 10 ** 6) }}", "MiB"},
      {"{{ (('a' * 10 ** 6) ~ '\\n') * 100 | tojson(indent='b' * 10 ** 8) }}", ""},
      {"{{ [[[1]]] | tojson(indent='b' * 10 ** 8) }}", "MiB"},
      {loop + "{% set x = 'a' * 10 ** 8 %}{{ x }}{% endfor %}", ""},
      {loop + "{{ 'x' in 'a' * 10 ** 6 }}{% endfor %}", "steps"},
      {"{% set s = 'a' * 10 ** 6 %}" + loop + "{{ 'b' in s }}{% endfor %}", "steps"},
      {loop + "{% macro f() %}{{ i }}{% endmacro %}" + loop + "{% macro g() %}{% endmacro %}{% endfor %}{% endfor %}", ""},
      {"{{ cycler(*range(99999)).next.next }}" + std::string("{% for i in 'a' * 10 ** 8 %}{% endfor %}"), "MiB"},
      {"{{ ('a' * 10 ** 8) | list }}", "MiB"},
      {"{{ ('a ' * 10 ** 8).split() }}", "MiB"},
      {"{{ 10 ** 10 ** 10 }}", "100 bits"},
      {"{{ '9' * 1000 | int }}", ""},
      {"{{ ('9' * 1000) | int }}", "100 bits"},
  };
  Limits limits;
  limits.steps = 2'000'000;
  limits.held_bytes = int64_t{32} << 20;
  for (const auto& [text, expected] : hostile) {
    const std::string error = error_of(text, {{"a", 1}}, {.limits = limits});
    EXPECT_NE(error.find(expected), std::string::npos) << text.substr(0, 200) << "\n" << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

/// An operation on a long text or list costs steps, whatever looks at it, so that none goes on for ever in a loop.
TEST(Jinja, CountsWhatIsReadAndWritten) {
  const std::string loop = "{% for i in range(20000) %}", end = "{% endfor %}";
  const std::string text = "{% set s = 'ab ' * 100000 %}{% set d = {'k': s} %}";
  const std::string list = "{% set l = [1] * 100000 %}";
  std::string names;
  for (int i = 0; i < 5000; ++i) names += "{% set v" + std::to_string(i) + " = 1 %}";
  const std::string counted[] = {
      text + loop + "{% set x = s.startswith(s) %}" + end,
      text + loop + "{% set x = 'x'.startswith(s) %}" + end,
      text + loop + "{% set x = 'x'.find(s) %}" + end,
      text + loop + "{% set x = 'x'.strip(s) %}" + end,
      text + loop + "{% set x = 'x' | trim(s) %}" + end,
      text + loop + "{% set x = 'x'.removesuffix(s) %}" + end,
      text + loop + "{% set x = 'x'.split(s) %}" + end,
      text + loop + "{% set x = s in 'x' %}" + end,
      text + loop + "{% set x = s | int %}" + end,
      text + loop + "{% set x = d.get(s) %}" + end,
      text + "{% set t = ('x',) * 5000 + (s,) * 5000 %}" + loop + "{% set x = s.endswith(t) %}" + end,
      list + loop + "{% set x = l | first %}" + end,
      list + loop + "{% set x = l | last %}" + end,
      list + loop + "{% set x = (l | unique | list) %}" + end,
      "{% set l = range(5000) | list %}" + loop + "{% set x = '{}'.format(*l) %}" + end,
      names + loop + loop + "{% set x = v4999 %}{% set x = v4999 %}{% set x = v4999 %}" + end + end,
      "{{ ([1] * 9000) | tojson(separators=('b' * 9000, ':')) }}",
      loop + "{{ '%.1000f' % 0.1 }}{{ '{:.1000f}'.format(0.1) }}" + end,
  };
  Limits limits;
  limits.steps = test::draws(1'500'000, 300'000);
  for (const std::string& each : counted) {
    const std::string error = error_of(each, ordered_json::object(), {.limits = limits});
    EXPECT_NE(error.find("steps"), std::string::npos) << each.substr(0, 200) << "\n" << error;
  }
}

/// Texts that are nearly found at every place, which a search place by place would take minutes for.
TEST(Jinja, SearchesLongTextsForLongOnes) {
  const std::string length = std::to_string(test::draws(3'000'000, 300'000));
  const std::string texts =
      "{% set s = 'a' * " + length + " %}{% set t = 'a' * (" + length + " // 2) ~ 'b' %}{% set u = 'b' ~ t[:-1] %}";
  const std::pair<const char*, std::string> searches[] = {
      {"{{ s.find(t) }}", "-1"},
      {"{{ s.rfind(u) }}", "-1"},
      {"{{ (s ~ t).find(t) }}", length},
      {"{{ (u ~ s).rfind(u) }}", "0"},
      {"{{ t in s }}", "False"},
      {"{{ s.count(t) }}", "0"},
      {"{{ s.split(t) | length }}", "1"},
      {"{{ s.rsplit(u) | length }}", "1"},
      {"{{ (u ~ s ~ u ~ s).rsplit(u, 1)[1] | length }}", length},
      {"{{ s.replace(t, 'x') | length }}", length},
      {"{{ s | replace(t, 'x') | length }}", length},
      {"{{ s.partition(t)[0] | length }}", length},
      {"{{ s.rpartition(u)[2] | length }}", length},
  };
  for (const auto& [search, expected] : searches) EXPECT_EQ(render(texts + search), expected) << search;
}

TEST(Jinja, StripsAndSlicesCharactersOfSeveralBytes) {
  EXPECT_EQ(render("{{ '\u00e9x\u6c34'.strip('\u6c34\u00e9') }}"), "x");
  EXPECT_EQ(render("{{ 'a\u00e9b\u6c34c'[::-2] }}|{{ 'a\u00e9b\u6c34c'[1::2] }}|{{ 'a\u00e9b\u6c34c'[3:0:-1] }}"),
            "cba|\u00e9\u6c34|\u6c34b\u00e9");
  EXPECT_EQ(render("{{ 'a\u00e9b\u00e9c'.rsplit('\u00e9', 1) | join('-') }}"), "a\u00e9b-c");
}

/// What refers to each other in long chains, or in circles, is freed without as much stack.
TEST(Jinja, LongChainsAreFreed) {
  const std::string loop = "{% for i in range(" + std::to_string(test::draws(50'000, 20'000)) + ") %}";
  for (const std::string& text :
       {"{% set ns = namespace() %}" + loop +
            "{% set prev = ns.x %}{% for y in [1] recursive %}{% set ns.x = loop %}{% endfor %}{% endfor %}",
        "{% set ns = namespace() %}" + loop +
            "{% set prev = ns.x %}{% macro f() %}{% endmacro %}{% set ns.x = f %}{% endfor %}",
        "{% set ns = namespace() %}" + loop + "{% set next = namespace(x=ns.x) %}{% set ns.x = next %}{% endfor %}",
        std::string("{% set ns = namespace() %}{% set ns.a = ns %}{% macro f() %}{% endmacro %}{% set ns.f = f %}")})
    EXPECT_EQ(error_of(text), "") << text;
}

}  // namespace
}  // namespace ferry::jinja
