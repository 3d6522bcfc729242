#include "runtime/unit_contents.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/vision/prompt_media.h"

namespace ferry {
namespace {

/// A SHA-256 of things one after another, each of a length that is known or told before it.
class Digest {
 public:
  Digest() { FERRY_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1) << "SHA-256"; }

  void add(std::span<const std::byte> bytes) {
    FERRY_CHECK_EQ(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), 1);
  }
  void add(int64_t number) { add(std::as_bytes(std::span(&number, 1))); }
  void add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    add(std::as_bytes(std::span(text)));
  }
  decltype(UnitContent::digest) finish() {
    decltype(UnitContent::digest) digest{};
    FERRY_CHECK_EQ(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr), 1);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

bool overlaps(const MediaSpan& span, int64_t begin, int64_t end) {
  return span.first_token < end && span.first_token + span.num_tokens > begin;
}

}  // namespace

std::vector<UnitContent> unit_contents(const Request& request, int64_t unit_tokens) {
  std::vector<UnitContent> contents;
  const auto num_units = std::ssize(request.prompt) / unit_tokens;
  std::span<const MediaSpan> spans;
  if (request.media != nullptr) spans = request.media->spans;
  for (int64_t unit = 0; unit < num_units; ++unit) {
    const int64_t begin = unit * unit_tokens, end = begin + unit_tokens;
    const bool is_salted = unit == 0 && !request.cache_salt.empty();
    while (!spans.empty() && spans.front().first_token + spans.front().num_tokens <= begin) spans = spans.subspan(1);
    if (!is_salted && (spans.empty() || !overlaps(spans.front(), begin, end))) continue;
    Digest digest;
    digest.add(is_salted ? std::string_view(request.cache_salt) : std::string_view());
    for (const MediaSpan& span : spans) {
      if (!overlaps(span, begin, end)) break;
      digest.add(request.media->media[span.medium]->digest);
      for (const int64_t number : {span.first_token - begin, span.num_tokens, span.first_row}) digest.add(number);
    }
    contents.push_back({.unit = unit, .digest = digest.finish()});
  }
  return contents;
}

}  // namespace ferry
