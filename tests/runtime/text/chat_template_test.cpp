#include "runtime/text/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "runtime/base/error.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

using Messages = std::vector<std::pair<std::string, std::string>>;  // role, content

ChatInput chat_of(const Messages& messages, std::optional<bool> thinking = {}) {
  ChatInput chat{.thinking = thinking};
  for (const auto& [role, content] : messages) chat.messages.push_back({{"role", role}, {"content", content}});
  return chat;
}

const std::filesystem::path kDemoDir = test::source_folder() / "launch/demo";

/// A template of the form that Qwen3.5's have. `generation` is what follows the assistant header.
std::string qwen_template(const std::string& generation,
                          const std::string& keep_condition = "loop.index0 > ns.last_query_index") {
  return R"({%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content|trim + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content|trim %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if )" +
         keep_condition + R"( %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content|trim + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
)" + generation +
         "\n{%- endif %}";
}

const char* const kOffIfFalse = R"({%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %})";
const char* const kOnIfTrue = R"({%- if enable_thinking is defined and enable_thinking is true %}
        {{- '<think>\n' }}
    {%- else %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %})";
const char* const kOnlyOff = R"({%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %})";

const Messages kHi = {{"user", "Hi"}};
const std::string kHiPrompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";

std::string generation_prompt(const std::string& generation, std::optional<bool> thinking = {}) {
  const std::string prompt = ChatTemplate::parse(qwen_template(generation)).render(chat_of(kHi, thinking));
  EXPECT_TRUE(prompt.starts_with(kHiPrompt));
  return prompt.substr(kHiPrompt.size());
}

std::string render_error(const ChatTemplate& chat_template, const Messages& messages, std::optional<bool> thinking = {}) {
  try {
    chat_template.render(chat_of(messages, thinking));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class CheckpointDir {
 public:
  CheckpointDir() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("ferry_chat_template_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~CheckpointDir() { std::filesystem::remove_all(path_); }
  CheckpointDir(const CheckpointDir&) = delete;
  CheckpointDir& operator=(const CheckpointDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, const std::string& text) const { std::ofstream(path_ / name) << text; }

 private:
  std::filesystem::path path_;
};

TEST(ChatTemplate, RendersTheDemosConversation) {
  const ChatTemplate demo = ChatTemplate::load(kDemoDir);
  EXPECT_EQ(demo.unsupported_reason(), "");
  const Messages messages = {
      {"system", " Be brief.\n"}, {"user", "Hi\xE3\x80\x80"}, {"assistant", "<think>\nx\n</think>\n\nHello"}, {"user", "Bye"}};
  const std::string expected =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
      "<|im_start|>assistant\n<think>\nx\n</think>\n\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\n";
  EXPECT_EQ(demo.render(chat_of(messages)), expected);
  EXPECT_EQ(demo.render(chat_of(messages, false)), expected);
  EXPECT_NE(render_error(demo, messages, true).find("thinking 'on' is not possible"), std::string::npos);
}

TEST(ChatTemplate, ReadsTheThinkingDefaultOffTheTemplate) {
  const std::string open = "<think>\n";
  const std::string empty = "<think>\n\n</think>\n\n";
  EXPECT_EQ(generation_prompt(kOffIfFalse), open);
  EXPECT_EQ(generation_prompt(kOffIfFalse, true), open);
  EXPECT_EQ(generation_prompt(kOffIfFalse, false), empty);
  EXPECT_EQ(generation_prompt(kOnIfTrue), empty);
  EXPECT_EQ(generation_prompt(kOnIfTrue, true), open);
  EXPECT_EQ(generation_prompt(kOnIfTrue, false), empty);
  EXPECT_EQ(generation_prompt(kOnlyOff), "");
  EXPECT_EQ(generation_prompt(kOnlyOff, true), "");
  EXPECT_EQ(generation_prompt(kOnlyOff, false), empty);
}

TEST(ChatTemplate, RefusesThinkingThatTheTemplateCannotAskFor) {
  const ChatTemplate always = ChatTemplate::parse(qwen_template(R"({{- '<think>\n' }})"));
  EXPECT_EQ(always.render(chat_of(kHi)), kHiPrompt + "<think>\n");
  EXPECT_EQ(always.render(chat_of(kHi, true)), kHiPrompt + "<think>\n");
  EXPECT_NE(render_error(always, kHi, false).find("thinking 'off' is not possible"), std::string::npos);
  const ChatTemplate never = ChatTemplate::parse(qwen_template(""));
  EXPECT_EQ(never.render(chat_of(kHi, false)), kHiPrompt);
  EXPECT_NE(render_error(never, kHi, true).find("thinking 'on' is not possible"), std::string::npos);
}

TEST(ChatTemplate, KeepsReasoningOnlyAfterTheLastUserQuery) {
  const ChatTemplate chat_template = ChatTemplate::parse(qwen_template(kOffIfFalse));
  const Messages messages = {{"user", "One"},
                             {"assistant", "<think>\nold\n</think>\n\nFirst"},
                             {"user", "Two"},
                             {"assistant", "<think>\n new \n</think> a </think>\n\n Second"},
                             {"user", "<tool_response>\n4\n</tool_response>"},
                             {"assistant", "Third"}};
  EXPECT_EQ(chat_template.render(chat_of(messages, false)),
            "<|im_start|>user\nOne<|im_end|>\n"
            "<|im_start|>assistant\nFirst<|im_end|>\n"
            "<|im_start|>user\nTwo<|im_end|>\n"
            "<|im_start|>assistant\n<think>\nnew\n</think>\n\n Second<|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\nThird<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(ChatTemplate, ReadsTheTreatmentOfReasoningOffTheTemplate) {
  const Messages messages = {
      {"user", "1"}, {"assistant", "<think>r</think>a"}, {"user", "2"}, {"assistant", "b"}, {"assistant", "c"}};
  const auto third_turn_on = [&](const std::string& jinja) {
    const std::string prompt = ChatTemplate::parse(jinja).render(chat_of(messages, false));
    return prompt.substr(prompt.find("<|im_start|>assistant"));
  };
  const std::string old_dropped = "<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\n2<|im_end|>\n";
  const std::string old_kept = "<|im_start|>assistant\n<think>\nr\n</think>\n\na<|im_end|>\n<|im_start|>user\n2<|im_end|>\n";
  const std::string b_wrapped = "<|im_start|>assistant\n<think>\n\n</think>\n\nb<|im_end|>\n";
  const std::string c_wrapped = "<|im_start|>assistant\n<think>\n\n</think>\n\nc<|im_end|>\n";
  const std::string end = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
  EXPECT_EQ(
      third_turn_on(qwen_template(
          kOffIfFalse, "(preserve_thinking is defined and preserve_thinking is true) or (loop.index0 > ns.last_query_index)")),
      old_dropped + b_wrapped + c_wrapped + end);
  EXPECT_EQ(
      third_turn_on(qwen_template(
          kOffIfFalse, "preserve_thinking is undefined or preserve_thinking is true or loop.index0 > ns.last_query_index")),
      old_kept + b_wrapped + c_wrapped + end);
  EXPECT_EQ(third_turn_on(qwen_template(
                kOffIfFalse, "loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content))")),
            old_dropped + "<|im_start|>assistant\nb<|im_end|>\n" + c_wrapped + end);
}

/// A template of the form that LFM2.5's have: a token before it all, an optional system prompt, old answers without reasoning.
/// `option` keeps all reasoning; without it `drop_condition` says which turns lose theirs.
std::string lfm2_template(const std::string& option, const std::string& drop_condition) {
  return R"({{- bos_token -}}
{%- set )" +
         option + " = " + option + R"( | default(false) -%}
{%- if messages[0]["role"] == "system" -%}
    {%- set ns.system_prompt = messages[0]["content"] -%}
{%- endif -%}
{%- if ns.system_prompt -%}
    {{- "<|im_start|>system\n" + ns.system_prompt + "<|im_end|>\n" -}}
{%- endif -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\n" -}}
    {%- if message.thinking is defined -%}
        {{- "<think>" + message.thinking + "</think>" -}}
    {%- endif -%}
    {%- if )" +
         drop_condition + R"( -%}
        {%- if "</think>" in content -%}
            {%- set content = content.split("</think>")[-1] | trim -%}
        {%- endif -%}
    {%- endif -%}
    {{- content + "<|im_end|>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>assistant\n" -}}
{%- endif -%})";
}

const char* const kDropBeforeLastTurn = "not keep_past_thinking and loop.index0 != ns.last_assistant_index";
const char* const kDropBeforeUser = "not (preserve_thinking or loop.index0 > ns.last_user_index)";

TEST(ChatTemplate, TrimsOldAnswersWhereTheTemplateDoes) {
  const Messages messages = {{"system", ""},
                             {"user", " 1 "},
                             {"assistant", "<think>r</think> a</think> b\n"},
                             {"user", "2"},
                             {"assistant", " c "},
                             {"assistant", "<think>r</think> d"},
                             {"assistant", " e</think> f "}};
  const std::string old_turns =
      "<s><|im_start|>user\n 1 <|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\n2<|im_end|>\n"
      "<|im_start|>assistant\n c <|im_end|>\n<|im_start|>assistant\n";
  const std::string last_turn = "<|im_end|>\n<|im_start|>assistant\n e</think> f <|im_end|>\n<|im_start|>assistant\n";
  const ChatTemplate by_turn = ChatTemplate::parse(lfm2_template("keep_past_thinking", kDropBeforeLastTurn), "<s>");
  EXPECT_EQ(by_turn.render(chat_of(messages)), old_turns + "d" + last_turn);
  const ChatTemplate by_user = ChatTemplate::parse(lfm2_template("preserve_thinking", kDropBeforeUser), "<s>");
  EXPECT_EQ(by_user.render(chat_of(messages, false)), old_turns + "<think>r</think> d" + last_turn);
  EXPECT_EQ(by_user.render(chat_of(Messages{{"system", " "}, {"user", "x"}})),
            "<s><|im_start|>system\n <|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, BeginsWithTheBosTokenOfTheCheckpoint) {
  const std::string rest = lfm2_template("preserve_thinking", kDropBeforeUser).substr(17);
  ASSERT_TRUE(rest.starts_with("\n{%-"));
  const CheckpointDir dir;
  for (const char* form : {"{{- bos_token -}}", "{{ bos_token }}", "{{bos_token}}"}) {
    dir.write("chat_template.jinja", form + rest);
    EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat_of(kHi)), kHiPrompt) << "no file says what it is";
  }
  dir.write("special_tokens_map.json", R"({"bos_token": {"content": "<a>"}})");
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat_of(kHi)), "<a>" + kHiPrompt);
  dir.write("tokenizer_config.json", R"({"bos_token": "<b>"})");
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat_of(kHi)), "<b>" + kHiPrompt);
  for (const std::string& jinja :
       {"{{ bos_token }}\n{{" + rest.substr(4), "{{ bos_token + 'x' }}" + rest, "{{ bos_token }}" + rest + "{{ bos_token }}",
        "{% if x %}{{ bos_token }}{% endif %}" + rest}) {
    EXPECT_NE(ChatTemplate::parse(jinja).unsupported_reason().find("bos_token"), std::string::npos) << jinja;
  }
}

TEST(ChatTemplate, RefusesConversationsThatTheTemplatesRefuse) {
  const ChatTemplate demo = ChatTemplate::load(kDemoDir);
  EXPECT_NE(render_error(demo, {}).find("no messages"), std::string::npos);
  EXPECT_NE(render_error(demo, {{"system", "x"}}).find("no user query"), std::string::npos);
  EXPECT_NE(render_error(demo, {{"user", " <tool_response>4</tool_response>\n"}}).find("no user query"), std::string::npos);
  EXPECT_NE(render_error(demo, {{"user", "x"}, {"system", "y"}}).find("message 1 has the role 'system'"), std::string::npos);
  EXPECT_NE(render_error(demo, {{"user", "x"}, {"tool", "y"}}).find("tool messages are not supported"), std::string::npos);
  EXPECT_NE(render_error(demo, {{"User", "x"}}).find("'User', allowed are"), std::string::npos);
}

TEST(ChatTemplate, RefusesOtherTemplates) {
  const std::vector<std::string> others = {
      "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}",
      "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
      qwen_template("").substr(0, qwen_template("").find("{%- if add_generation_prompt")),
      "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}" + qwen_template(""),
      qwen_template("{%- if enable_thinking %}{{- '<think>\\n' }}{%- endif %}"),
      qwen_template("{{- '<think>' }}"),
      qwen_template("{%- if x %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- else %}{{- '<think>\\n' }}{%- endif %}"),
      qwen_template(kOffIfFalse, "preserve_thinking or loop.index0 > ns.last_query_index"),
      qwen_template(kOffIfFalse, "loop.first"),
      lfm2_template("preserve_thinking", kDropBeforeLastTurn),
      lfm2_template("preserve_thinking", "not preserve_thinking"),
      lfm2_template("keep_past_thinking", kDropBeforeUser),
      "{{ '<think>' + x }}" + lfm2_template("preserve_thinking", kDropBeforeUser).substr(17),
      "{%- if reasoning_effort == 'low' %}{%- endif %}" + qwen_template(kOffIfFalse),
      "",
  };
  for (const std::string& jinja : others) {
    const ChatTemplate chat_template = ChatTemplate::parse(jinja);
    EXPECT_NE(chat_template.unsupported_reason().find("not of the Qwen ChatML form"), std::string::npos) << jinja;
    EXPECT_EQ(render_error(chat_template, kHi), chat_template.unsupported_reason());
  }
}

TEST(ChatTemplate, FindsTheTemplateOfACheckpoint) {
  const CheckpointDir dir;
  EXPECT_NE(render_error(ChatTemplate::load(dir.path()), kHi).find("has no chat template"), std::string::npos);
  dir.write("tokenizer_config.json", R"({"eos_token": "x"})");
  EXPECT_NE(render_error(ChatTemplate::load(dir.path()), kHi).find("has no chat template"), std::string::npos);
  const std::string one_line =
      R"({% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %})"
      R"({% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %})";
  dir.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": ")" + one_line + "\"}]}");
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat_of(Messages{{"user", " Hi"}})),
            "<|im_start|>user\n Hi<|im_end|>\n<|im_start|>assistant\n")
      << "without the trim filter content is not trimmed";
  dir.write("chat_template.jinja", qwen_template(kOffIfFalse));
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat_of(kHi)), kHiPrompt + "<think>\n");
}

TEST(ChatTemplate, RefusesDamagedFiles) {
  for (const char* text : {"{", "[]", R"({"chat_template": 3})"}) {
    const CheckpointDir dir;
    dir.write("tokenizer_config.json", text);
    EXPECT_THROW(ChatTemplate::load(dir.path()), Error) << text;
  }
}

TEST(ChatTemplate, SeesWhetherAPromptEndsInThinking) {
  EXPECT_TRUE(ends_in_thinking("<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(ends_in_thinking("<think>a</think>b<|im_end|><think>c"));
  EXPECT_FALSE(ends_in_thinking("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_thinking("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_FALSE(ends_in_thinking(""));
}

}  // namespace
}  // namespace ferry
