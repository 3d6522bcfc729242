#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/text/byte_pair_merges.h"
#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/tokenizer_file.h"
#include "runtime/text/unicode_text.h"

namespace ferry {
namespace {

/// Finds added tokens in text.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
    std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
    for (size_t i = tokens_.size(); i-- > 0;) {
      Range& range = by_first_byte_[static_cast<uint8_t>(tokens_[i].content[0])];
      if (range.end == 0) range.end = i + 1;
      range.begin = i;
    }
  }

  /// The first added token at or after `from`, at its place the longest; null if there is none. Sets where it begins. Calls
  /// `pass` with the bytes that were compared where one could have begun.
  template <class Pass>
  const AddedToken* find(std::string_view text, size_t from, size_t& at, const Pass& pass) const {
    for (at = from; at < text.size(); ++at) {
      const Range& range = by_first_byte_[static_cast<uint8_t>(text[at])];
      if (range.begin == range.end) continue;
      if (const AddedToken* const longest = longest_at(text.substr(at), range, pass)) return longest;
    }
    return nullptr;
  }

  bool empty() const { return tokens_.empty(); }

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  /// The longest token of `range` that `text` begins with; null if there is none. Byte by byte the range becomes those that
  /// begin so, of which the shortest is the first.
  template <class Pass>
  const AddedToken* longest_at(std::string_view text, Range range, const Pass& pass) const {
    const AddedToken* longest = nullptr;
    size_t num_bytes = 1;  // that all of the range have in common with the text
    while (true) {
      for (; range.begin < range.end && tokens_[range.begin].content.size() == num_bytes; ++range.begin)
        longest = &tokens_[range.begin];
      if (range.begin == range.end || num_bytes == text.size()) break;
      const auto byte = static_cast<uint8_t>(text[num_bytes]);
      const auto byte_of = [num_bytes](const AddedToken& token) { return static_cast<uint8_t>(token.content[num_bytes]); };
      const auto first = tokens_.begin() + static_cast<ptrdiff_t>(range.begin);
      const auto last = tokens_.begin() + static_cast<ptrdiff_t>(range.end);
      const auto same_begin = std::ranges::lower_bound(first, last, byte, {}, byte_of);
      const auto same_end = std::ranges::upper_bound(same_begin, last, byte, {}, byte_of);
      range = {static_cast<size_t>(same_begin - tokens_.begin()), static_cast<size_t>(same_end - tokens_.begin())};
      ++num_bytes;
    }
    pass(num_bytes);
    return longest;
  }

  std::vector<AddedToken> tokens_;        // in the order of their bytes
  std::array<Range, 256> by_first_byte_;  // positions in tokens_
};

constexpr size_t kBytesPerCheckIn = 1 << 14;  // of text: some milliseconds

/// Those that are looked for in raw text, or those that are looked for in normalized text.
AddedTokenFinder make_finder(const TokenizerFile& file, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : file.added_tokens) {
    if (token.normalized == normalized) tokens.push_back(token);
  }
  return AddedTokenFinder(std::move(tokens));
}

BytePairMerges make_merges(const std::vector<MergeRule>& rules) {
  BytePairMerges merges(rules.size());
  for (const MergeRule& rule : rules) merges.add(rule.left, rule.right, rule.merged);
  return merges;
}

}  // namespace

/// Calls a caller's check-in every kBytesPerCheckIn bytes of a text, wherever in it they are.
class Tokenizer::CheckIn {
 public:
  explicit CheckIn(const EncodeLimits& limits) : limits_(limits) {}
  void pass(size_t num_bytes) {
    num_unchecked_ += num_bytes;
    if (num_unchecked_ < kBytesPerCheckIn || !limits_.check_in) return;
    limits_.check_in();
    num_unchecked_ = 0;
  }

 private:
  const EncodeLimits& limits_;
  size_t num_unchecked_ = 0;
};

struct Tokenizer::Data {
  explicit Data(TokenizerFile file);

  struct Token {
    size_t begin = 0;  // position in `bytes`
    size_t num_bytes = 0;
    bool special = false;
    bool added = false;
  };

  void add_token(TokenId token_id, std::string_view content, std::string_view token_bytes, bool special);

  std::string bytes;                                           // of all tokens
  std::vector<Token> tokens;                                   // [size()]; ids that do not exist have no bytes
  size_t longest_token = 1;                                    // bytes
  std::unordered_map<std::string_view, TokenId> ids;           // views of `bytes`
  std::vector<TokenId> byte_tokens;                            // [256]
  std::unordered_map<std::string_view, TokenId> whole_pieces;  // views of `bytes`: pieces that no merges are asked for
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  bool normalize_nfc = false;
  PreTokenizer pre_tokenizer;
  BytePairMerges merges;
  AddedTokenFinder raw_added_tokens;
  AddedTokenFinder normalized_added_tokens;
};

Tokenizer::Data::Data(TokenizerFile file)
    : byte_tokens(std::move(file.byte_tokens)),
      prefix(std::move(file.prefix)),
      suffix(std::move(file.suffix)),
      normalize_nfc(file.normalize_nfc),
      pre_tokenizer(file.split_regex),
      merges(make_merges(file.merges)),
      raw_added_tokens(make_finder(file, false)),
      normalized_added_tokens(make_finder(file, true)) {
  size_t num_bytes = 0;
  TokenId max_id = 0;
  for (const auto& entry : file.vocabulary) {
    num_bytes += entry.bytes.size();
    max_id = std::max(max_id, entry.token_id);
  }
  for (const auto& token : file.added_tokens) {
    num_bytes += token.content.size() + token.bytes.size();
    max_id = std::max(max_id, token.token_id);
  }
  bytes.reserve(num_bytes);  // so that views of it stay valid
  tokens.resize(static_cast<size_t>(max_id) + 1);
  ids.reserve(file.vocabulary.size() + file.added_tokens.size());
  for (const auto& token : file.added_tokens) {
    add_token(token.token_id, token.content, token.bytes, token.special);
    tokens[static_cast<size_t>(token.token_id)].added = true;
  }
  for (const auto& entry : file.vocabulary) {
    if (tokens[static_cast<size_t>(entry.token_id)].num_bytes == 0) add_token(entry.token_id, entry.bytes, entry.bytes, false);
    const Token& token = tokens[static_cast<size_t>(entry.token_id)];
    if (file.ignore_merges && entry.byte_level)
      whole_pieces.emplace(std::string_view(bytes).substr(token.begin, token.num_bytes), entry.token_id);
  }
  FERRY_CHECK_LE(bytes.size(), num_bytes);
}

void Tokenizer::Data::add_token(TokenId token_id, std::string_view content, std::string_view token_bytes, bool special) {
  size_t begin = bytes.size();
  bytes.append(content);
  ids.emplace(std::string_view(bytes).substr(begin), token_id);
  longest_token = std::max({longest_token, content.size(), token_bytes.size()});
  if (token_bytes != content) {
    begin = bytes.size();
    bytes.append(token_bytes);
  }
  tokens[static_cast<size_t>(token_id)] = {begin, token_bytes.size(), special};
}

/// One text on its way into token ids.
class Tokenizer::Encoding {
 public:
  Encoding(const Data& data, const EncodeLimits& limits) : data_(data), limits_(limits), check_in_(limits) {}

  void reserve(size_t num_tokens) { ids_.reserve(num_tokens); }

  void add_tokens(std::span<const TokenId> ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    check_room(0);
  }

  /// Cuts the added tokens of raw text out of it.
  void add_text(std::string_view text) {
    cut_out(data_.raw_added_tokens, text, [this](std::string_view rest) { add_normalized(rest); });
  }

  std::vector<TokenId> take() && { return std::move(ids_); }

 private:
  /// Adds the tokens that `finder` finds in `text`, and by `add_rest` what lies before, between and after them.
  template <class AddRest>
  void cut_out(const AddedTokenFinder& finder, std::string_view text, const AddRest& add_rest) {
    for (size_t from = 0; from < text.size();) {
      size_t at = 0;
      const AddedToken* const added = finder.find(text, from, at, [this](size_t num_bytes) { check_in_.pass(num_bytes); });
      if (at > from) add_rest(text.substr(from, at - from));
      if (added == nullptr) break;
      ids_.push_back(added->token_id);
      check_room(0);
      check_in_.pass(added->content.size());
      from = at + added->content.size();
    }
  }

  void add_normalized(std::string_view raw) {
    const std::string composed = data_.normalize_nfc ? to_nfc(raw) : std::string();
    const std::string_view text = data_.normalize_nfc ? std::string_view(composed) : raw;
    check_room(text.size());
    if (data_.normalized_added_tokens.empty()) return add_pieces(text);
    cut_out(data_.normalized_added_tokens, text, [this](std::string_view rest) { add_pieces(rest); });
  }

  void add_pieces(std::string_view text) {
    const auto take = [&](std::string_view piece) {
      check_room(piece.size());
      add_piece(piece);
      check_room(0);
      check_in_.pass(piece.size());
    };
    data_.pre_tokenizer.split(text, take, limits_.check_in);
  }

  void add_piece(std::string_view piece) {
    const auto whole = data_.whole_pieces.find(piece);
    if (whole != data_.whole_pieces.end()) return ids_.push_back(whole->second);
    const size_t begin = ids_.size();
    for (const char c : piece) ids_.push_back(data_.byte_tokens[static_cast<uint8_t>(c)]);
    data_.merges.apply(ids_, begin, limits_.check_in);
  }

  /// Ends the encoding if `num_bytes` more bytes of normalized text cannot fit any more.
  void check_room(size_t num_bytes) const {
    const size_t num_more = num_bytes / data_.longest_token + (num_bytes % data_.longest_token == 0 ? 0 : 1);
    if (ids_.size() > limits_.max_tokens || num_more > limits_.max_tokens - ids_.size()) {
      const std::string most = std::to_string(limits_.max_tokens);
      throw_invalid("prompt is too long, its text has more than " + most +
                    " tokens; allowed: " + (limits_.allowed.empty() ? "at most " + most : limits_.allowed));
    }
  }

  const Data& data_;
  const EncodeLimits& limits_;
  CheckIn check_in_;
  std::vector<TokenId> ids_;
};

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& checkpoint_dir) {
  return Tokenizer(std::make_unique<const Data>(read_tokenizer_file(checkpoint_dir)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeLimits& limits) const {
  return encode_between({}, text, {}, limits);
}

std::vector<TokenId> Tokenizer::encode_prompt(std::string_view text, const EncodeLimits& limits) const {
  return encode_between(data_->prefix, text, data_->suffix, limits);
}

std::vector<TokenId> Tokenizer::encode_between(std::span<const TokenId> prefix, std::string_view text,
                                               std::span<const TokenId> suffix, const EncodeLimits& limits) const {
  const std::string repaired = is_utf8(text) ? std::string() : repair_utf8(text);
  if (!repaired.empty()) text = repaired;
  Encoding encoding(*data_, limits);
  encoding.reserve(text.size() / 3 + 8);
  encoding.add_tokens(prefix);
  encoding.add_text(text);
  encoding.add_tokens(suffix);
  return std::move(encoding).take();
}

size_t Tokenizer::longest_token_bytes() const { return data_->longest_token; }

std::string Tokenizer::decode(std::span<const TokenId> token_ids, SpecialTokens special) const {
  std::string bytes;
  for (const TokenId token_id : token_ids) {
    if (special == SpecialTokens::kSkip && is_special(token_id)) continue;
    bytes.append(token_bytes(token_id));
  }
  return repair_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(TokenId token_id) const {
  if (token_id < 0 || token_id >= size()) return {};
  const Data::Token& token = data_->tokens[static_cast<size_t>(token_id)];
  return std::string_view(data_->bytes).substr(token.begin, token.num_bytes);
}

bool Tokenizer::is_added(TokenId token_id) const {
  return token_id >= 0 && token_id < size() && data_->tokens[static_cast<size_t>(token_id)].added;
}

bool Tokenizer::is_special(TokenId token_id) const {
  return token_id >= 0 && token_id < size() && data_->tokens[static_cast<size_t>(token_id)].special;
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(data_->tokens.size()); }

std::optional<TokenId> Tokenizer::id_of(std::string_view content) const {
  const auto it = data_->ids.find(content);
  if (it == data_->ids.end()) return std::nullopt;
  return it->second;
}

}  // namespace ferry
