#include "runtime/server/front/call_traits.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/server/front/prompt_pieces.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::string_view kAccounting = "x-anthropic-billing-header";  // of a block that coordinators leave out of prompts

uint64_t seeded_hash(std::string_view text, uint64_t seed) { return content_hash(std::as_bytes(std::span(text)), seed); }

/// The text of a member of `object`; empty if it has none.
std::string_view text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? std::string_view(found->get_ref<const std::string&>())
                                                     : std::string_view();
}

/// The first of these members that says something.
std::optional<std::string_view> first_text(const json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const std::string_view text = text_of(object, name); !text.empty()) return text;
  }
  return std::nullopt;
}

/// Adds what a prompt is made of, in the order in which templates put it. What is added need not be the prompt: it has to
/// begin alike where prompts begin alike.
class PromptReader {
 public:
  explicit PromptReader(std::string_view salt) : pieces_(salt) {}

  void read(const json& body) {
    if (const auto tools = body.find("tools"); tools != body.end()) pieces_.add(dumped(*tools));
    for (const char* name : {"system", "instructions"}) {
      if (const auto text = body.find(name); text != body.end()) add_message("system", *text);
    }
    for (const char* name : {"messages", "input"}) {
      if (const auto list = body.find(name); list != body.end()) add_messages(*list);
    }
    if (const auto prompt = body.find("prompt"); prompt != body.end()) add_prompt(*prompt);
  }
  std::vector<uint64_t> beginnings() const { return pieces_.beginnings(); }

 private:
  static std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

  void add_messages(const json& list) {
    if (list.is_string()) return add_message("user", list);
    if (!list.is_array()) return;
    for (const json& message : list) {
      if (pieces_.is_full()) return;
      const auto content = message.is_object() ? message.find("content") : message.end();
      if (!message.is_object() || content == message.end()) {
        pieces_.add(dumped(message));
        continue;
      }
      add_message(text_of(message, "role"), *content);
      if (const auto calls = message.find("tool_calls"); calls != message.end()) pieces_.add(dumped(*calls));
    }
  }

  void add_message(std::string_view role, const json& content) {
    pieces_.add("\n");
    pieces_.add(role);
    pieces_.add("\n");
    if (content.is_string()) return pieces_.add(content.get_ref<const std::string&>());
    if (!content.is_array()) return pieces_.add(dumped(content));
    for (const json& part : content) add_part(part);
  }

  /// Marks of what a client wants to be cached move from turn to turn, and are no part of the prompt.
  void add_part(json part) {
    if (!part.is_object()) return pieces_.add(dumped(part));
    if (const auto text = part.find("text"); text != part.end() && text->is_string()) {
      const std::string& words = text->get_ref<const std::string&>();
      if (!words.starts_with(kAccounting)) pieces_.add(words);
      return;
    }
    part.erase("cache_control");
    pieces_.add(dumped(part));
  }

  /// Text, token ids, or a list of either, of which the first counts.
  void add_prompt(const json& prompt) {
    if (prompt.is_string()) return pieces_.add(prompt.get_ref<const std::string&>());
    if (!prompt.is_array() || prompt.empty()) return;
    if (!prompt.front().is_number()) return add_prompt_of_list(prompt.front());
    for (const json& id : prompt) {
      if (id.is_number_integer()) pieces_.add_token(static_cast<uint32_t>(id.get<int64_t>()));
    }
  }

  void add_prompt_of_list(const json& prompt) {
    const bool is_nested = prompt.is_array() && !prompt.empty() && prompt.front().is_array();
    if (!is_nested) add_prompt(prompt);
  }

  PromptPieces pieces_;
};

/// The user of OpenAI's APIs, or of Anthropic's.
std::optional<std::string_view> user_of(const json& body) {
  if (const auto user = first_text(body, {"user"})) return user;
  const auto metadata = body.find("metadata");
  return metadata != body.end() && metadata->is_object() ? first_text(*metadata, {"user_id"}) : std::nullopt;
}

}  // namespace

uint64_t session_hash(std::string_view name) { return seeded_hash(name, 1); }
uint64_t user_hash(std::string_view name) { return seeded_hash(name, 2); }

CallTraits http_call_traits(const HttpRequest& head, std::string_view text, const JsonLimits& limits) {
  CallTraits traits;
  if (const auto name = head.header(kSessionHeader)) traits.session = session_hash(*name);
  if (text.empty()) return traits;
  try {
    const json body = parse_json(text, "body", limits);
    if (!body.is_object()) return traits;
    const auto session = first_text(body, {"session_id", "prompt_cache_key"});
    if (session && !traits.session) traits.session = session_hash(*session);
    if (const auto user = user_of(body)) traits.user = user_hash(*user);
    PromptReader reader(text_of(body, "cache_salt"));
    reader.read(body);
    traits.beginnings = reader.beginnings();
  } catch (const Error&) {
    // The coordinator says what is wrong with it.
  }
  return traits;
}

}  // namespace ferry
