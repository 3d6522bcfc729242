#include <algorithm>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/model/vision/vision_plan.h"
#include "runtime/vision/picture.h"
#include "runtime/vision/placeholders.h"
#include "runtime/vision/preprocess.h"
#include "tests/fuzz/memory_folder.h"
#include "tests/fuzz/targets.h"

// Pictures of users, and what a checkpoint says of them.

namespace ferry::fuzz {

/// Of any type: each type has a target whose seeds are of it. What can be read can be cut into patches, or is too long.
void read_picture(Input input) {
  constexpr PictureLimits kLimits{.max_bytes = 1 << 16, .max_pixels = 1 << 16};
  constexpr PictureProcessor kSmall{.min_pixels = 1024, .max_pixels = 4096};
  const Picture picture = decode_picture(std::as_bytes(input), kLimits);
  FERRY_CHECK(picture.width > 0 && picture.height > 0 && picture.width * picture.height <= kLimits.max_pixels);
  FERRY_CHECK_EQ(std::ssize(picture.rgb), picture.width * picture.height * 3);
  const Patches patches = make_patches(picture, kSmall);
  FERRY_CHECK_EQ(std::ssize(patches.values), patches.grid.num_patches() * kSmall.patch_cols());
  FERRY_CHECK(std::ranges::all_of(patches.values, [](float x) { return x >= -1.0F && x <= 1.0F; }));
}

/// config.json up to the first zero byte, preprocessor_config.json behind it.
void read_vision_config(Input input) {
  const std::string_view text = text_of(input);
  const std::size_t end = std::min(text.find('\0'), text.size());
  static const MemoryFolder folder;
  folder.clear();
  folder.write("config.json", text.substr(0, end));
  if (end < text.size()) folder.write("preprocessor_config.json", text.substr(end + 1));
  const std::optional<VisionConfig> config = load_vision_config(folder.path());
  if (!config) return;
  FERRY_CHECK(config->plan.head_dim() * config->plan.num_heads == config->plan.hidden_dim);
  FERRY_CHECK_LE(config->pictures.min_pixels, config->pictures.max_pixels);
}

/// Each byte is a token: 0 a picture's place, 1 a video's. The first bytes say how many pictures and how large.
void place_pictures(Input input) {
  constexpr VisionTokens kTokens{.image = 0, .video = 1, .vision_start = 2, .vision_end = 3};
  std::vector<Grid> images, videos;
  std::vector<VideoSteps> steps;
  if (input.empty()) return;
  const std::size_t num_grids = std::min<std::size_t>(input.front() % 8, input.size() - 1);
  for (const uint8_t byte : input.subspan(1, num_grids)) {
    const Grid grid{.t = 1 + byte / 64 % 4, .h = 2 + byte % 4 * 2, .w = 2 + byte / 4 % 4 * 2};
    if (byte / 16 % 2 == 0) {
      images.push_back({.t = 1, .h = grid.h, .w = grid.w});
    } else {
      videos.push_back(grid);
      steps.push_back({.grid = grid, .times = std::vector<double>(static_cast<std::size_t>(grid.t), 0.25)});
    }
  }
  const std::span<const uint8_t> text = input.subspan(1 + num_grids);
  const std::vector<TokenId> ids(text.begin(), text.end());
  const auto tokenize = [](std::string_view stamp) { return std::vector<TokenId>(stamp.size(), 9); };
  const PromptGrids media{.images = images, .videos = steps};
  const std::vector<TokenId> expanded = expand_placeholders(ids, kTokens, media, tokenize);
  const MropePositions positions = mrope_positions(expanded, kTokens, images, videos, media.merge_size);
  for (const std::vector<int32_t>& axis : positions.axes) {
    FERRY_CHECK_EQ(axis.size(), expanded.size());
    const int32_t next = positions.delta + static_cast<int32_t>(expanded.size());
    FERRY_CHECK(std::ranges::all_of(axis, [next](int32_t p) { return p >= 0 && p < next; }));
  }
}

}  // namespace ferry::fuzz
