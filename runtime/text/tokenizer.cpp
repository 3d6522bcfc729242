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
  explicit AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
    std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
      return a.content[0] != b.content[0] ? a.content[0] < b.content[0] : a.content.size() > b.content.size();
    });
    for (size_t i = tokens_.size(); i-- > 0;) {
      Range& range = by_first_byte_[static_cast<uint8_t>(tokens_[i].content[0])];
      if (range.end == 0) range.end = i + 1;
      range.begin = i;
    }
  }

  /// The first added token at or after `from`, at its place the longest; null if there is none. Sets where it begins.
  const AddedToken* find(std::string_view text, size_t from, size_t& at) const {
    for (at = from; at < text.size(); ++at) {
      const Range& range = by_first_byte_[static_cast<uint8_t>(text[at])];
      for (size_t i = range.begin; i < range.end; ++i) {
        if (text.substr(at).starts_with(tokens_[i].content)) return &tokens_[i];
      }
    }
    return nullptr;
  }

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  std::vector<AddedToken> tokens_;        // by first byte, then the longest first
  std::array<Range, 256> by_first_byte_;  // positions in tokens_
};

constexpr size_t kBytesPerCheckIn = 1 << 14;  // of text: some milliseconds

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
  };

  void add_token(TokenId token_id, std::string_view token_text, bool special);
  /// Appends the ids of text without added tokens.
  void encode_plain(std::string_view text, const EncodeLimits& limits, CheckIn& check_in, std::vector<TokenId>& out) const;
  /// Ends the encoding if `num_bytes` more bytes of composed text after `num_tokens` tokens cannot fit any more.
  void check_room(size_t num_tokens, size_t num_bytes, const EncodeLimits& limits) const;

  std::string bytes;                                  // of all tokens
  std::vector<Token> tokens;                          // [size()]; ids that do not exist have no bytes
  size_t longest_token = 1;                           // bytes
  std::unordered_map<std::string_view, TokenId> ids;  // views of `bytes`
  std::vector<TokenId> byte_tokens;                   // [256]
  bool normalize_nfc = false;
  PreTokenizer pre_tokenizer;
  BytePairMerges merges;
  AddedTokenFinder added_tokens;
};

Tokenizer::Data::Data(TokenizerFile file)
    : byte_tokens(std::move(file.byte_tokens)),
      normalize_nfc(file.normalize_nfc),
      pre_tokenizer(file.split_regex),
      merges(make_merges(file.merges)),
      added_tokens(file.added_tokens) {
  size_t num_bytes = 0;
  TokenId max_id = 0;
  for (const auto& entry : file.vocabulary) {
    num_bytes += entry.bytes.size();
    max_id = std::max(max_id, entry.token_id);
  }
  for (const auto& token : file.added_tokens) {
    num_bytes += token.content.size();
    max_id = std::max(max_id, token.token_id);
  }
  bytes.reserve(num_bytes);  // so that views of it stay valid
  tokens.resize(static_cast<size_t>(max_id) + 1);
  ids.reserve(file.vocabulary.size() + file.added_tokens.size());
  for (const auto& token : file.added_tokens) add_token(token.token_id, token.content, token.special);
  for (const auto& entry : file.vocabulary) {
    if (tokens[static_cast<size_t>(entry.token_id)].num_bytes == 0) add_token(entry.token_id, entry.bytes, false);
  }
  FERRY_CHECK_LE(bytes.size(), num_bytes);
}

void Tokenizer::Data::add_token(TokenId token_id, std::string_view token_text, bool special) {
  const size_t begin = bytes.size();
  bytes.append(token_text);
  tokens[static_cast<size_t>(token_id)] = {begin, token_text.size(), special};
  longest_token = std::max(longest_token, token_text.size());
  ids.emplace(std::string_view(bytes).substr(begin), token_id);
}

void Tokenizer::Data::check_room(size_t num_tokens, size_t num_bytes, const EncodeLimits& limits) const {
  const size_t num_more = num_bytes / longest_token + (num_bytes % longest_token == 0 ? 0 : 1);
  if (num_tokens > limits.max_tokens || num_more > limits.max_tokens - num_tokens) {
    throw_invalid("the prompt's text has more than " + std::to_string(limits.max_tokens) +
                  " tokens; allowed: at most so many, by the context's length and the cache's");
  }
}

void Tokenizer::Data::encode_plain(std::string_view text, const EncodeLimits& limits, CheckIn& check_in,
                                   std::vector<TokenId>& out) const {
  const std::string composed = normalize_nfc ? to_nfc(text) : std::string(text);
  check_room(out.size(), composed.size(), limits);
  pre_tokenizer.split(composed, [&](std::string_view piece) {
    check_room(out.size(), piece.size(), limits);
    const size_t begin = out.size();
    for (const char c : piece) out.push_back(byte_tokens[static_cast<uint8_t>(c)]);
    merges.apply(out, begin, limits.check_in);
    check_room(out.size(), 0, limits);
    check_in.pass(piece.size());
  });
}

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& checkpoint_dir) {
  return Tokenizer(std::make_unique<const Data>(read_tokenizer_file(checkpoint_dir)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeLimits& limits) const {
  const std::string repaired = is_utf8(text) ? std::string() : repair_utf8(text);
  if (!repaired.empty()) text = repaired;
  std::vector<TokenId> token_ids;
  token_ids.reserve(text.size() / 3 + 8);
  CheckIn check_in(limits);
  for (size_t from = 0; from < text.size();) {
    size_t at = 0;
    const AddedToken* const added = data_->added_tokens.find(text, from, at);
    data_->encode_plain(text.substr(from, at - from), limits, check_in, token_ids);
    if (added == nullptr) break;
    data_->check_room(token_ids.size() + 1, 0, limits);
    check_in.pass(added->content.size());
    token_ids.push_back(added->token_id);
    from = at + added->content.size();
  }
  return token_ids;
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
