#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/vision/medium.h"
#include "runtime/vision/placeholders.h"

namespace ferry {

/// Tokens of a prompt that embeddings of the tower take the place of.
struct MediaSpan {
  int64_t first_token = 0;
  int64_t num_tokens = 0;
  std::size_t medium = 0;  // of PromptMedia::media
  int64_t first_row = 0;   // of the medium's embeddings
};

/// The pictures and videos of one prompt and where they are in it. Never changes once made.
struct PromptMedia {
  std::vector<std::shared_ptr<const Medium>> media;
  std::vector<MediaSpan> spans;  // by first_token
  MropePositions positions;
};

/// A prompt whose placeholders are expanded; `media` is null where there are none.
struct MediaPrompt {
  std::vector<TokenId> ids;
  std::shared_ptr<const PromptMedia> media;
};

/// `ids` with one placeholder for every medium; pictures and videos each in order of appearance. Throws as
/// expand_placeholders() does.
MediaPrompt place_media(std::span<const TokenId> ids, std::span<const std::shared_ptr<const Medium>> media,
                        const VisionTokens& tokens, int64_t merge_size, const Tokenize& tokenize);

}  // namespace ferry
