#include "runtime/vision/prompt_media.h"

#include <utility>

namespace ferry {
namespace {

/// Media of one kind, in order of appearance, and how far their placeholders have come.
struct Queue {
  TokenId id;
  std::vector<std::size_t> media;
  std::vector<Grid> grids;
  std::size_t next = 0;
  int64_t step = 0;

  void add(std::size_t medium, const Grid& grid) {
    media.push_back(medium);
    grids.push_back(grid);
  }

  /// The step of time whose first placeholder is token `first_token`.
  MediaSpan take_step(int64_t first_token, int64_t merge_size) {
    const Grid& grid = grids[next];
    const int64_t num_tokens = grid.step_patches() / (merge_size * merge_size);
    const MediaSpan span{
        .first_token = first_token, .num_tokens = num_tokens, .medium = media[next], .first_row = step * num_tokens};
    if (++step == grid.t) {
      step = 0;
      ++next;
    }
    return span;
  }
};

}  // namespace

MediaPrompt place_media(std::span<const TokenId> ids, std::span<const std::shared_ptr<const Medium>> media,
                        const VisionTokens& tokens, int64_t merge_size, const Tokenize& tokenize) {
  Queue pictures{.id = tokens.image}, videos{.id = tokens.video};
  std::vector<VideoSteps> steps;
  for (std::size_t i = 0; i < media.size(); ++i) {
    const Medium& medium = *media[i];
    const bool is_video = medium.kind == Medium::Kind::kVideo;
    (is_video ? videos : pictures).add(i, medium.grid);
    if (is_video) steps.push_back({.grid = medium.grid, .times = medium.times});
  }
  MediaPrompt prompt;
  prompt.ids =
      expand_placeholders(ids, tokens, {.images = pictures.grids, .videos = steps, .merge_size = merge_size}, tokenize);
  if (media.empty()) return prompt;
  PromptMedia placed{.media = {media.begin(), media.end()}};
  placed.positions = mrope_positions(prompt.ids, tokens, pictures.grids, videos.grids, merge_size);
  for (int64_t token = 0; token < std::ssize(prompt.ids);) {
    const TokenId id = prompt.ids[static_cast<std::size_t>(token)];
    if (id != tokens.image && id != tokens.video) {
      ++token;
      continue;
    }
    placed.spans.push_back((id == tokens.image ? pictures : videos).take_step(token, merge_size));
    token += placed.spans.back().num_tokens;
  }
  prompt.media = std::make_shared<const PromptMedia>(std::move(placed));
  return prompt;
}

}  // namespace ferry
