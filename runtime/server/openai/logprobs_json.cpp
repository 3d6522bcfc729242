#include "runtime/server/openai/logprobs_json.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace ferry::api::openai {
namespace {

constexpr double kLeast = -9999.0;  // what JSON has no number for, and NaN

double told(float logprob) { return logprob > kLeast ? static_cast<double>(logprob) : kLeast; }

ordered_json bytes_json(std::string_view bytes) {
  ordered_json list = ordered_json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

ordered_json token_json(const TokenLogprob& token, const TokenNames& names) {
  return {{"token", names.name(token.id)}, {"logprob", told(token.logprob)}, {"bytes", bytes_json(names.bytes(token.id))}};
}

bool has_chosen(const TokenLogprobs& position) {
  const auto is_chosen = [&](const TokenLogprob& token) { return token.id == position.chosen.id; };
  return std::any_of(position.top.begin(), position.top.end(), is_chosen);
}

ordered_json position_json(const TokenLogprobs& position, const TokenNames& names) {
  ordered_json entry = token_json(position.chosen, names);
  ordered_json top = ordered_json::array();
  for (const TokenLogprob& token : position.top) top.push_back(token_json(token, names));
  if (!position.top.empty() && !has_chosen(position)) top.push_back(token_json(position.chosen, names));
  entry["top_logprobs"] = std::move(top);
  return entry;
}

void add_candidate(const TokenLogprob& token, const TokenNames& names, ordered_json& candidates) {
  candidates[std::to_string(token.id)] = {
      {"logprob", told(token.logprob)}, {"rank", token.rank}, {"decoded_token", names.text(token.id)}};
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

}  // namespace

ordered_json chat_logprobs(std::span<const TokenLogprobs> positions, const TokenNames& names) {
  ordered_json content = ordered_json::array();
  for (const TokenLogprobs& position : positions) content.push_back(position_json(position, names));
  return {{"content", std::move(content)}};
}

ordered_json prompt_logprobs(std::span<const TokenLogprobs> positions, const TokenNames& names) {
  ordered_json list = ordered_json::array({nullptr});
  for (const TokenLogprobs& position : positions) {
    ordered_json candidates = ordered_json::object();
    add_candidate(position.chosen, names, candidates);
    for (const TokenLogprob& token : position.top) {
      if (token.id != position.chosen.id) add_candidate(token, names, candidates);
    }
    list.push_back(std::move(candidates));
  }
  return list;
}

void CompletionLogprobs::add_name(TokenId id) {
  std::string name = names_.name(id);
  offsets_.push_back(offset_);
  offset_ += num_characters(name);
  tokens_.push_back(std::move(name));
}

void CompletionLogprobs::add_first(TokenId id) {
  add_name(id);
  logprobs_.push_back(nullptr);
  tops_.push_back(nullptr);
}

void CompletionLogprobs::add(const TokenLogprobs& position) {
  add_name(position.chosen.id);
  logprobs_.push_back(told(position.chosen.logprob));
  ordered_json top = ordered_json::object();
  // Of tokens of one name the likeliest stands for all.
  for (const TokenLogprob& token : position.top) top.emplace(names_.name(token.id), told(token.logprob));
  if (!has_chosen(position)) top.emplace(names_.name(position.chosen.id), told(position.chosen.logprob));
  tops_.push_back(std::move(top));
}

ordered_json CompletionLogprobs::take() {
  ordered_json pieces = {{"text_offset", std::move(offsets_)},
                         {"token_logprobs", std::move(logprobs_)},
                         {"tokens", std::move(tokens_)},
                         {"top_logprobs", std::move(tops_)}};
  offsets_ = logprobs_ = tokens_ = tops_ = ordered_json::array();
  return pieces;
}

}  // namespace ferry::api::openai
