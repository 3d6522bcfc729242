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
const std::filesystem::path kQwenTemplate = test::source_folder() / "tests/golden/chat_templates/qwen3_5.jinja";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A template of the form that Qwen3.5's have. `generation` is what follows the assistant header.
std::string qwen_template(const std::string& generation) {
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
        {{- '<|im_start|>' + message.role + '\n' + content }}
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

std::string render_error(const ChatTemplate& chat_template, const ChatInput& chat) {
  try {
    chat_template.render(chat);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string render_error(const ChatTemplate& chat_template, const Messages& messages, std::optional<bool> thinking = {}) {
  return render_error(chat_template, chat_of(messages, thinking));
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
  EXPECT_TRUE(demo.takes_parts());
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

TEST(ChatTemplate, ThinksAsItIsTold) {
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
  ChatInput chat = chat_of(kHi);
  chat.kwargs["enable_thinking"] = false;
  EXPECT_EQ(ChatTemplate::parse(qwen_template(kOffIfFalse)).render(chat), kHiPrompt + empty);
  chat.thinking = true;
  EXPECT_EQ(ChatTemplate::parse(qwen_template(kOffIfFalse)).render(chat), kHiPrompt + open);
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
  const ChatTemplate chat_template = ChatTemplate::parse(read(kQwenTemplate));
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

TEST(ChatTemplate, PassesToolsAndArguments) {
  ChatInput chat = chat_of(kHi);
  chat.tools = {{{"type", "function"}, {"name", "f"}}};
  chat.kwargs = {{"style", "short"}};
  chat.add_generation_prompt = false;
  const ChatTemplate chat_template =
      ChatTemplate::parse("{{ tools | tojson }}{{ style }}{{ add_generation_prompt }}{{ documents }}{{ bos_token }}",
                          {{"bos_token", "<s>"}, {"style", "long"}});
  EXPECT_EQ(chat_template.render(chat), R"([{"type": "function", "name": "f"}]shortFalseNone<s>)");
  for (const char* name : {"messages", "tools", "add_generation_prompt"}) {
    chat.kwargs = {{name, 1}};
    EXPECT_NE(render_error(chat_template, chat).find(std::string("'") + name + "' cannot be"), std::string::npos);
  }
  chat.kwargs = 5;
  EXPECT_NE(render_error(chat_template, chat), "");
}

TEST(ChatTemplate, MessagesArePlain) {
  const ChatTemplate chat_template = ChatTemplate::parse("{% for m in messages %}{{ m | tojson }}{% endfor %}");
  ChatInput chat;
  chat.messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", nullptr}, {"reasoning", "r"}});
  EXPECT_EQ(chat_template.render(chat),
            R"({"role": "assistant", "reasoning": "r", "thinking": "r", "reasoning_content": "r"})");
  chat.messages.push_back(3);
  EXPECT_EQ(render_error(chat_template, chat), "chat: message 1 is not an object");
  EXPECT_NE(render_error(chat_template, Messages{}).find("no messages"), std::string::npos);
}

ChatInput chat_with_parts() {
  ChatInput chat;
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  parts.push_back({{"type", "text"}, {"text", "a "}});
  parts.push_back({{"type", "image"}});
  parts.push_back({{"type", "text"}, {"text", "b"}});
  chat.messages.push_back({{"role", "user"}, {"content", parts}});
  return chat;
}

TEST(ChatTemplate, PartsAreForTemplatesThatLookThroughThem) {
  const ChatTemplate qwen = ChatTemplate::parse(read(kQwenTemplate));
  EXPECT_TRUE(qwen.takes_parts());
  EXPECT_TRUE(qwen.render(chat_with_parts()).starts_with("<|im_start|>user\na <|vision_start|><|image_pad|><|vision_end|>b<"));
  const ChatTemplate plain = ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_FALSE(plain.takes_parts());
  EXPECT_NE(render_error(plain, chat_with_parts()).find("message 0 has a part that is no text"), std::string::npos);
  ChatInput texts = chat_with_parts();
  texts.messages[0]["content"].erase(1);
  EXPECT_EQ(plain.render(texts), "a \nb");
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  const ChatTemplate qwen = ChatTemplate::parse(qwen_template(kOffIfFalse));
  ChatInput chat = chat_of({{"user", "Hi"}, {"assistant", "The answer \n"}});
  chat.continue_final_message = true;
  EXPECT_NE(render_error(qwen, chat).find("exclude each other"), std::string::npos);
  chat.add_generation_prompt = false;
  const std::string begun = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
  EXPECT_EQ(ChatTemplate::parse(read(kQwenTemplate)).render(chat), begun + "The answer");
  const ChatTemplate verbatim = ChatTemplate::parse("{% for m in messages %}[{{ m.content }}]{% endfor %}");
  EXPECT_EQ(verbatim.render(chat), "[Hi][The answer \n");
  chat.messages[1]["content"] = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  EXPECT_EQ(ChatTemplate::parse(read(kQwenTemplate)).render(chat), begun + "ab");
  chat.messages[1]["content"] = "<think>x</think>";
  EXPECT_NE(render_error(ChatTemplate::parse(read(kQwenTemplate)), chat).find("is not possible"), std::string::npos);
  chat.messages[1].erase("content");
  EXPECT_NE(render_error(verbatim, chat).find("needs a last message with text"), std::string::npos);
}

/// A template of the form that LFM2.5's have: a token before it all, an optional system prompt, old answers without reasoning.
/// `option` keeps all reasoning; without it `drop_condition` says which turns lose theirs.
std::string lfm2_template(const std::string& option, const std::string& drop_condition) {
  return R"({{- bos_token -}}
{%- set )" +
         option + " = " + option + R"( | default(false) -%}
{%- set ns = namespace(system_prompt="", last_user_index=-1, last_assistant_index=-1) -%}
{%- if messages[0]["role"] == "system" -%}
    {%- set ns.system_prompt = messages[0]["content"] -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- if ns.system_prompt -%}
    {{- "<|im_start|>system\n" + ns.system_prompt + "<|im_end|>\n" -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message["role"] == "user" -%}
        {%- set ns.last_user_index = loop.index0 -%}
    {%- elif message["role"] == "assistant" -%}
        {%- set ns.last_assistant_index = loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\n" -}}
    {%- set content = message["content"] -%}
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
  const nlohmann::ordered_json tokens = {{"bos_token", "<s>"}};
  const ChatTemplate by_turn = ChatTemplate::parse(lfm2_template("keep_past_thinking", kDropBeforeLastTurn), tokens);
  EXPECT_EQ(by_turn.render(chat_of(messages)), old_turns + "d" + last_turn);
  const ChatTemplate by_user = ChatTemplate::parse(lfm2_template("preserve_thinking", kDropBeforeUser), tokens);
  EXPECT_EQ(by_user.render(chat_of(messages, false)), old_turns + "<think>r</think> d" + last_turn);
  EXPECT_EQ(by_user.render(chat_of(Messages{{"system", " "}, {"user", "x"}})),
            "<s><|im_start|>system\n <|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, KnowsTheSpecialTokensOfTheCheckpoint) {
  const CheckpointDir dir;
  dir.write("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ image_token }}|{{ pad_token is defined }}");
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat_of(kHi)), "|||False") << "no file says what they are";
  dir.write("special_tokens_map.json", R"({"bos_token": {"content": "<a>"}, "eos_token": "</a>", "pad_token": null})");
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat_of(kHi)), "<a>|</a>||False");
  dir.write("tokenizer_config.json", R"({"bos_token": "<b>", "extra_special_tokens": {"image_token": {"content": "<i>"}}})");
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat_of(kHi)), "<b>|</a>|<i>|False");
}

TEST(ChatTemplate, RefusesWithTheTemplatesWords) {
  const ChatTemplate qwen = ChatTemplate::parse(read(kQwenTemplate));
  EXPECT_EQ(render_error(qwen, Messages{{"system", "x"}}), "No user query found in messages.");
  EXPECT_EQ(render_error(qwen, Messages{{"user", " <tool_response>4</tool_response>\n"}}), "No user query found in messages.");
  EXPECT_EQ(render_error(qwen, Messages{{"user", "x"}, {"system", "y"}}), "System message must be at the beginning.");
  EXPECT_EQ(render_error(qwen, Messages{{"user", "x"}, {"wizard", "y"}}), "Unexpected message role.");
}

TEST(ChatTemplate, SaysWhatItDoesNotUnderstand) {
  const ChatTemplate broken = ChatTemplate::parse("\n{% include 'x' %}");
  EXPECT_EQ(broken.unsupported_reason(), "the chat template, line 2: the tag 'include' is not supported");
  EXPECT_EQ(render_error(broken, kHi), broken.unsupported_reason());
  try {
    broken.render(chat_of(kHi));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
  }
}

TEST(ChatTemplate, FindsTheTemplateOfACheckpoint) {
  const CheckpointDir dir;
  EXPECT_NE(render_error(ChatTemplate::load(dir.path()), kHi).find("has no chat template"), std::string::npos);
  dir.write("tokenizer_config.json", R"({"eos_token": "x"})");
  EXPECT_NE(render_error(ChatTemplate::load(dir.path()), kHi).find("has no chat template"), std::string::npos);
  dir.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "T{{ tools[0] }}"},
                                                           {"name": "default", "template": "D{{ tools }}"}]})");
  ChatInput chat = chat_of(kHi);
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat), "DNone");
  chat.tools = {"f"};
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat), "Tf");
  dir.write("tokenizer_config.json", R"({"chat_template": "S"})");
  EXPECT_EQ(ChatTemplate::load(dir.path()).render(chat), "S");
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
