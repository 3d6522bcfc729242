#include "runtime/text/tokenizer_file.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/base/is_there.h"
#include "runtime/base/json.h"
#include "runtime/text/unicode_text.h"

namespace ferry {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kUnimplemented, "tokenizer.json: " + message); }

/// object[key], or null if it is absent.
const json& member(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object())
    throw_invalid("tokenizer files: expected an object with '" + std::string(key) + "', got " + shown(object));
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

/// Absent, null, false, 0 and "" all mean that an option is off.
bool is_off(const json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0.0;
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

std::string type_of(const json& object) {
  const json& type = member(object, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

TokenId checked_id(const json& value, const std::string& of_what) {
  if (!value.is_number_integer() || value < 0 || value > kMaxTokenId) {
    throw_invalid("tokenizer files: the id of '" + of_what + "' is " + shown(value) + ", allowed are 0 to " +
                  std::to_string(kMaxTokenId));
  }
  return value.get<TokenId>();
}

/// GPT-2's map: printable Latin-1 bytes are spelt as themselves, the other 68 as U+0100, U+0101, … in order.
constexpr size_t kNumByteSpellings = 0x144;

constexpr std::array<int16_t, kNumByteSpellings> make_byte_of_code_point() {
  std::array<int16_t, kNumByteSpellings> bytes{};
  bytes.fill(-1);
  size_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    bytes[printable ? static_cast<size_t>(b) : next++] = static_cast<int16_t>(b);
  }
  return bytes;
}

/// The bytes that a token's spelling stands for; nothing for a spelling with a character outside the map.
std::optional<std::string> unspell(std::string_view spelling) {
  static constexpr auto kByteOfCodePoint = make_byte_of_code_point();
  std::string bytes;
  bytes.reserve(spelling.size());
  for (size_t i = 0; i < spelling.size();) {
    const Utf8Step step = next_utf8(spelling.substr(i));
    if (step.kind != Utf8Step::Kind::kCharacter || step.num_bytes > 2) return std::nullopt;
    size_t code_point = static_cast<uint8_t>(spelling[i]);
    if (step.num_bytes == 2) code_point = ((code_point & 0x1FU) << 6) | (static_cast<uint8_t>(spelling[i + 1]) & 0x3FU);
    if (code_point >= kNumByteSpellings || kByteOfCodePoint[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOfCodePoint[code_point]));
    i += step.num_bytes;
  }
  return bytes;
}

/// What decoding makes of a token: Hugging Face's ByteLevel decoder leaves as it is what is no byte-level spelling.
std::string decoded(std::string_view spelling) { return unspell(spelling).value_or(std::string(spelling)); }

void check_model(const json& model) {
  const std::string type = type_of(model);
  if (type != "BPE") refuse("the model is of type '" + type + "', only byte-level 'BPE' is supported");
  for (const char* option : {"byte_fallback", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!is_off(member(model, option)))
      refuse("model." + std::string(option) + " is " + shown(member(model, option)) + ", it must be off");
  }
}

bool reads_nfc(const json& normalizer) {
  if (normalizer.is_null()) return false;
  const std::string type = type_of(normalizer);
  if (type == "NFC") return true;
  if (type == "Sequence" && member(normalizer, "normalizers").is_array()) {
    bool nfc = false;
    for (const json& step : member(normalizer, "normalizers")) nfc = reads_nfc(step) || nfc;
    return nfc;
  }
  refuse("the normalizer is of type '" + type + "', only 'NFC' or none is supported");
}

/// ByteLevel, alone or as the only member of a sequence listed under `list_key`.
bool is_byte_level(const json& stage, const char* list_key) {
  if (type_of(stage) == "ByteLevel") return true;
  if (type_of(stage) != "Sequence") return false;
  const json& list = member(stage, list_key);
  return list.is_array() && list.size() == 1 && is_byte_level(list[0], list_key);
}

std::string read_split_regex(const json& pre_tokenizer) {
  const char* const kExpected =
      "only a sequence of Split (a Regex, behavior Isolated) and ByteLevel (use_regex false) is supported";
  const json& steps = pre_tokenizer.is_object() ? member(pre_tokenizer, "pretokenizers") : pre_tokenizer;
  if (!steps.is_array() || steps.size() != 2 || type_of(steps[0]) != "Split" || type_of(steps[1]) != "ByteLevel") {
    refuse("the pre_tokenizer is " + shown(pre_tokenizer) + ", " + kExpected);
  }
  const json& pattern = member(steps[0], "pattern");
  const json& regex = pattern.is_object() ? member(pattern, "Regex") : pattern;
  if (!pattern.is_object() || !regex.is_string() || member(steps[0], "behavior") != "Isolated" ||
      !is_off(member(steps[0], "invert"))) {
    refuse("the pre_tokenizer's Split is " + shown(steps[0]) + ", " + kExpected);
  }
  if (member(steps[1], "use_regex") != false || !is_off(member(steps[1], "add_prefix_space"))) {
    refuse("the pre_tokenizer's ByteLevel is " + shown(steps[1]) + ", use_regex and add_prefix_space must be false");
  }
  return regex.get<std::string>();
}

[[noreturn]] void refuse_post_processor(const json& post_processor) {
  refuse("the post_processor is " + shown(post_processor) +
         ", only ByteLevel, TemplateProcessing around one text, a sequence of such and none are supported");
}

/// The ids that a TemplateProcessing has for one of its special tokens.
std::vector<TokenId> template_ids(const json& template_processing, const json& name) {
  const json& specials = member(template_processing, "special_tokens");
  if (!specials.is_object() || !name.is_string()) refuse_post_processor(template_processing);
  const json& special = member(specials, name.get_ref<const std::string&>().c_str());
  const json& list = special.is_object() ? member(special, "ids") : special;
  if (!list.is_array()) refuse_post_processor(template_processing);
  std::vector<TokenId> ids;
  for (const json& id : list) ids.push_back(checked_id(id, name.get<std::string>()));
  return ids;
}

/// The tokens that "single" has before and after $A, put around those that are there already.
void read_template(const json& template_processing, TokenizerFile& file) {
  const json& single = member(template_processing, "single");
  if (!single.is_array()) refuse_post_processor(template_processing);
  std::vector<TokenId> before;
  bool seen_text = false;
  for (const json& part : single) {
    const json& text = member(part, "Sequence");
    const json& special = member(part, "SpecialToken");
    if (special.is_object() == text.is_object()) refuse_post_processor(template_processing);
    if (text.is_object()) {
      if (seen_text || member(text, "id") != "A") refuse_post_processor(template_processing);
      seen_text = true;
      continue;
    }
    const std::vector<TokenId> ids = template_ids(template_processing, member(special, "id"));
    std::vector<TokenId>& side = seen_text ? file.suffix : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!seen_text) refuse_post_processor(template_processing);
  file.prefix.insert(file.prefix.begin(), before.begin(), before.end());
}

/// ByteLevel only moves offsets, which nothing here has.
void read_post_processor(const json& post_processor, TokenizerFile& file) {
  if (post_processor.is_null() || type_of(post_processor) == "ByteLevel") return;
  if (type_of(post_processor) == "TemplateProcessing") return read_template(post_processor, file);
  const json& list = member(post_processor, "processors");
  if (type_of(post_processor) != "Sequence" || !list.is_array()) refuse_post_processor(post_processor);
  for (const json& step : list) read_post_processor(step, file);
}

void check_decoder(const json& root) {
  const json& decoder = member(root, "decoder");
  if (decoder.is_null() || !is_byte_level(decoder, "decoders")) {
    refuse("the decoder is " + shown(decoder) + ", only ByteLevel is supported");
  }
}

using IdBySpelling = std::unordered_map<std::string_view, TokenId>;  // views of the parsed file's strings

std::pair<std::string_view, std::string_view> merge_halves(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  throw_invalid("tokenizer.json: the merge " + shown(merge) + " is neither \"a b\" nor [\"a\", \"b\"]");
}

void read_merges(const json& merges, const IdBySpelling& ids, TokenizerFile& file) {
  if (!merges.is_array()) throw_invalid("tokenizer.json: model.merges must be a list");
  const auto id_of = [&](std::string_view spelling) {
    const auto it = ids.find(spelling);
    if (it == ids.end())
      throw_invalid("tokenizer.json: a merge needs the token '" + std::string(spelling) + "', which is not in the vocabulary");
    return it->second;
  };
  file.merges.reserve(merges.size());
  std::string merged;
  for (const json& merge : merges) {
    const auto [left, right] = merge_halves(merge);
    merged.assign(left).append(right);
    file.merges.push_back({id_of(left), id_of(right), id_of(merged)});
  }
}

void read_vocabulary(const json& model, TokenizerFile& file) {
  const json& vocabulary = member(model, "vocab");
  if (!vocabulary.is_object() || vocabulary.empty()) throw_invalid("tokenizer.json: model.vocab must be an object with tokens");
  IdBySpelling ids;
  ids.reserve(vocabulary.size());
  file.vocabulary.reserve(vocabulary.size());
  file.byte_tokens.assign(256, -1);
  std::unordered_set<TokenId> seen;
  for (const auto& [spelling, value] : vocabulary.items()) {
    const TokenId token_id = checked_id(value, spelling);
    if (!seen.insert(token_id).second) throw_invalid("tokenizer.json: two tokens have the id " + std::to_string(token_id));
    ids.emplace(spelling, token_id);
    const std::optional<std::string> bytes = unspell(spelling);
    file.vocabulary.push_back({token_id, bytes.value_or(spelling), bytes.has_value()});
    if (bytes && bytes->size() == 1) file.byte_tokens[static_cast<uint8_t>((*bytes)[0])] = token_id;
  }
  for (size_t b = 0; b < file.byte_tokens.size(); ++b) {
    if (file.byte_tokens[b] < 0)
      throw_invalid("tokenizer.json: no token for byte " + std::to_string(b) + ", all 256 must have one");
  }
  read_merges(member(model, "merges"), ids, file);
}

/// The added tokens of a file, by id and by content: lists of some have hundreds of thousands.
class AddedTokens {
 public:
  explicit AddedTokens(TokenizerFile& file) : tokens_(file.added_tokens), normalize_nfc_(file.normalize_nfc) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) index(i);
  }

  /// Saying the same thing twice is fine, also in two files.
  void add(const json& entry, TokenId token_id) {
    const json& content = member(entry, "content");
    if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
      throw_invalid("tokenizer files: the added token " + std::to_string(token_id) + " has no content");
    }
    for (const char* option : {"lstrip", "rstrip", "single_word"}) {
      if (!is_off(member(entry, option)))
        refuse("the added token " + shown(content) + " has " + option + " set, which is not supported");
    }
    const bool normalized = !is_off(member(entry, "normalized"));
    const auto& written = content.get_ref<const std::string&>();
    const std::string text = normalized && normalize_nfc_ ? to_nfc(written) : written;
    const auto same_id = by_id_.find(token_id);
    const auto same_content = by_content_.find(text);
    if (same_id == by_id_.end() && same_content == by_content_.end()) {
      tokens_.push_back({token_id, text, decoded(text), !is_off(member(entry, "special")), normalized});
      return index(tokens_.size() - 1);
    }
    const AddedToken& known = tokens_[same_id != by_id_.end() ? same_id->second : same_content->second];
    if (known.token_id == token_id && known.content == text) return;
    throw_invalid("tokenizer files: added token " + shown(content) + " with id " + std::to_string(token_id) + " contradicts '" +
                  known.content + "' with id " + std::to_string(known.token_id));
  }

 private:
  void index(std::size_t i) {
    by_id_.emplace(tokens_[i].token_id, i);
    by_content_.emplace(tokens_[i].content, i);
  }

  std::vector<AddedToken>& tokens_;
  const bool normalize_nfc_;
  std::unordered_map<TokenId, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
};

void read_added_tokens(const json& root, TokenizerFile& file) {
  const json& list = member(root, "added_tokens");
  if (list.is_null()) return;
  if (!list.is_array()) throw_invalid("tokenizer.json: added_tokens must be a list");
  AddedTokens tokens(file);
  for (const json& entry : list) tokens.add(entry, checked_id(member(entry, "id"), shown(entry)));
}

void read_config_added_tokens(const json& config, TokenizerFile& file) {
  const json& decoder = member(config, "added_tokens_decoder");
  if (decoder.is_null()) return;
  if (!decoder.is_object()) throw_invalid("tokenizer_config.json: added_tokens_decoder must be an object");
  AddedTokens tokens(file);
  for (const auto& [key, entry] : decoder.items()) {
    const bool is_number = !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number)
      throw_invalid("tokenizer_config.json: added_tokens_decoder has the key '" + key + "', which is no token id");
    tokens.add(entry, checked_id(json(std::stol(key)), key));
  }
}

/// An added token may repeat a token of the vocabulary, but not take its id for another text. What the post-processor adds must
/// be one of either.
void check_ids(const TokenizerFile& file) {
  std::unordered_map<TokenId, const AddedToken*> added;
  for (const AddedToken& token : file.added_tokens) added.emplace(token.token_id, &token);
  std::unordered_set<TokenId> unknown(file.prefix.begin(), file.prefix.end());
  unknown.insert(file.suffix.begin(), file.suffix.end());
  for (const AddedToken& token : file.added_tokens) unknown.erase(token.token_id);
  for (const VocabularyEntry& entry : file.vocabulary) {
    unknown.erase(entry.token_id);
    const auto it = added.find(entry.token_id);
    if (it == added.end() || it->second->bytes == entry.bytes) continue;
    throw_invalid("tokenizer files: the added token '" + it->second->content + "' has the id " +
                  std::to_string(entry.token_id) + " of another token");
  }
  if (!unknown.empty())
    throw_invalid("tokenizer.json: the post_processor adds the id " + std::to_string(*unknown.begin()) + ", which is no token");
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& checkpoint_dir) {
  const json root = read_json_file(checkpoint_dir / "tokenizer.json");
  TokenizerFile file;
  check_model(member(root, "model"));
  file.ignore_merges = !is_off(member(member(root, "model"), "ignore_merges"));
  read_post_processor(member(root, "post_processor"), file);
  check_decoder(root);
  file.normalize_nfc = reads_nfc(member(root, "normalizer"));
  file.split_regex = read_split_regex(member(root, "pre_tokenizer"));
  read_vocabulary(member(root, "model"), file);
  read_added_tokens(root, file);
  const std::filesystem::path config_path = checkpoint_dir / "tokenizer_config.json";
  if (is_there(config_path)) return with_tokenizer_config(std::move(file), config_path);
  check_ids(file);
  return file;
}

TokenizerFile with_tokenizer_config(TokenizerFile file, const std::filesystem::path& config_path) {
  read_config_added_tokens(read_json_file(config_path), file);
  check_ids(file);
  return file;
}

}  // namespace ferry
