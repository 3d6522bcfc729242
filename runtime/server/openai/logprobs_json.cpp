#include "runtime/server/openai/logprobs_json.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>

namespace ferry::api::openai {
namespace {

constexpr double kLeast = -9999.0;        // what JSON has no number for, and NaN
constexpr std::size_t kEntryBytes = 110;  // of JSON: a token, its logprob, and its bytes or rank

double told(float logprob) { return logprob > kLeast ? static_cast<double>(logprob) : kLeast; }

void write_token(const TokenLogprob& token, const TokenNames& names, JsonText& json) {
  json.key("token").string(names.name(token.id));
  json.key("logprob").number(told(token.logprob));
  json.key("bytes").begin_array();
  for (const char byte : names.bytes(token.id)) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

bool has_chosen(const TokenLogprobs& position) {
  const auto is_chosen = [&](const TokenLogprob& token) { return token.id == position.chosen.id; };
  return std::any_of(position.top.begin(), position.top.end(), is_chosen);
}

void write_position(const TokenLogprobs& position, const TokenNames& names, JsonText& json) {
  const auto write_entry = [&](const TokenLogprob& token) {
    json.begin_object();
    write_token(token, names, json);
    json.end_object();
  };
  json.begin_object();
  write_token(position.chosen, names, json);
  json.key("top_logprobs").begin_array();
  for (const TokenLogprob& token : position.top) write_entry(token);
  if (!position.top.empty() && !has_chosen(position)) write_entry(position.chosen);
  json.end_array().end_object();
}

void write_candidate(const TokenLogprob& token, const TokenNames& names, JsonText& json) {
  json.key(std::to_string(token.id)).begin_object();
  json.key("logprob").number(told(token.logprob));
  json.key("rank").integer(token.rank);
  json.key("decoded_token").string(names.text(token.id));
  json.end_object();
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

/// Calls `visit` with each position, in order.
template <class Visit>
void for_each(const ToldPositions& told, Visit&& visit) {
  for (const TokenLogprobs& position : told.prompt) visit(position);
  for (const TokenLogprobs& position : told.completion) visit(position);
}

}  // namespace

void write_chat_logprobs(std::span<const TokenLogprobs> positions, const TokenNames& names, JsonText& json) {
  json.begin_object().key("content").begin_array();
  for (const TokenLogprobs& position : positions) write_position(position, names, json);
  json.end_array().end_object();
}

void write_prompt_logprobs(std::span<const TokenLogprobs> positions, const TokenNames& names, JsonText& json) {
  json.begin_array().null();
  for (const TokenLogprobs& position : positions) {
    json.begin_object();
    write_candidate(position.chosen, names, json);
    for (const TokenLogprob& token : position.top) {
      if (token.id != position.chosen.id) write_candidate(token, names, json);
    }
    json.end_object();
  }
  json.end_array();
}

/// Four lists, each over all positions: none of them is kept.
void CompletionLogprobs::write(const ToldPositions& told_positions, JsonText& json) {
  const bool has_first = told_positions.first.has_value();
  const auto write_list = [&](const char* name, auto write_first, auto write_one) {
    json.key(name).begin_array();
    if (has_first) write_first();
    for_each(told_positions, write_one);
    json.end_array();
  };
  const auto write_offset = [&](TokenId id) {
    json.integer(offset_);
    offset_ += num_characters(names_.name(id));
  };
  const auto write_null = [&] { json.null(); };
  json.begin_object();
  write_list(
      "text_offset", [&] { write_offset(*told_positions.first); },
      [&](const TokenLogprobs& position) { write_offset(position.chosen.id); });
  write_list("token_logprobs", write_null, [&](const TokenLogprobs& position) { json.number(told(position.chosen.logprob)); });
  write_list(
      "tokens", [&] { json.string(names_.name(*told_positions.first)); },
      [&](const TokenLogprobs& position) { json.string(names_.name(position.chosen.id)); });
  write_list("top_logprobs", write_null, [&](const TokenLogprobs& position) { write_top(position, json); });
  json.end_object();
}

/// Writes only the likeliest of several tokens that have one name.
void CompletionLogprobs::write_top(const TokenLogprobs& position, JsonText& json) const {
  std::unordered_set<std::string> seen;
  const auto write_one = [&](const TokenLogprob& token) {
    const auto [name, is_new] = seen.insert(names_.name(token.id));
    if (is_new) json.key(*name).number(told(token.logprob));
  };
  json.begin_object();
  for (const TokenLogprob& token : position.top) write_one(token);
  if (!has_chosen(position)) write_one(position.chosen);
  json.end_object();
}

std::size_t logprobs_text_bytes(std::span<const TokenLogprobs> positions) {
  std::size_t num_entries = 0;
  for (const TokenLogprobs& position : positions) num_entries += 2 + position.top.size();
  return num_entries * kEntryBytes;
}

}  // namespace ferry::api::openai
