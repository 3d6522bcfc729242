#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/vision/grid.h"

// A prompt with pictures, as token ids: each placeholder is repeated once for every merged patch, and the rotary positions of
// a picture's tokens are their rows and columns.

namespace ferry {

/// Ids that stand for pictures and videos in a prompt, from config.json.
struct VisionTokens {
  TokenId image = -1;
  TokenId video = -1;
  TokenId vision_start = -1;
  TokenId vision_end = -1;
};

/// What is put in the place of one video.
struct VideoSteps {
  Grid grid;
  std::vector<double> times;  // [grid.t] seconds
};

/// The pictures and videos of a prompt, each in order of appearance.
struct PromptGrids {
  std::span<const Grid> images;
  std::span<const VideoSteps> videos;
  int64_t merge_size = 2;  // patches a side of a token
};

/// Token ids of plain text.
using Tokenize = std::function<std::vector<TokenId>(std::string_view)>;

/// `ids` with one image id a picture and one video id a video, expanded: an image id to one for each merged patch; a video
/// id, with a vision_start before and a vision_end behind it if it has them, to "<T seconds>", vision_start, its ids and
/// vision_end for each step of time (transformers 5.17's Qwen3VLProcessor with the models' template).
///
/// Throws Error{kInvalidArgument} if there are not as many placeholders as pictures and videos.
std::vector<TokenId> expand_placeholders(std::span<const TokenId> ids, const VisionTokens& tokens, const PromptGrids& media,
                                         const Tokenize& tokenize);

/// Rotary positions of a prompt.
struct MropePositions {
  std::array<std::vector<int32_t>, 3> axes;  // time, height, width: [tokens] each
  int32_t delta = 0;                         // what follows has position token index + delta on every axis
};

/// Positions of expanded ids. Text counts up on all axes; a picture's tokens, and those of each step of a video, all have the
/// time of its first and its row and column beside; what follows begins behind the longer side. Pictures are told apart by
/// their grids, so no text needs to lie between them.
///
/// Throws Error{kInvalidArgument} unless the placeholders are exactly those of the grids, each picture's in one piece.
MropePositions mrope_positions(std::span<const TokenId> ids, const VisionTokens& tokens, std::span<const Grid> images,
                               std::span<const Grid> videos, int64_t merge_size);

}  // namespace ferry
