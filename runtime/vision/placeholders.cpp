#include "runtime/vision/placeholders.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

/// Tokens of one step of time.
int64_t step_tokens(const Grid& grid, int64_t merge_size) { return (grid.h / merge_size) * (grid.w / merge_size); }

void append(std::vector<TokenId>& ids, TokenId id, int64_t count) {
  ids.insert(ids.end(), static_cast<std::size_t>(count), id);
}

void append_video(std::vector<TokenId>& ids, const VideoSteps& video, const VisionTokens& tokens, int64_t merge_size,
                  const Tokenize& tokenize) {
  FERRY_CHECK_EQ(std::ssize(video.times), video.grid.t);
  for (const double time : video.times) {
    std::array<char, 352> text{};  // holds any double
    std::snprintf(text.data(), text.size(), "<%.1f seconds>", time);
    const std::vector<TokenId> stamp = tokenize(text.data());
    ids.insert(ids.end(), stamp.begin(), stamp.end());
    ids.push_back(tokens.vision_start);
    append(ids, tokens.video, step_tokens(video.grid, merge_size));
    ids.push_back(tokens.vision_end);
  }
}

void check_count(std::span<const TokenId> ids, TokenId id, std::size_t num_given, const char* what) {
  const auto num_asked = static_cast<std::size_t>(std::ranges::count(ids, id));
  if (num_asked == num_given) return;
  throw_invalid("prompt: it has " + std::to_string(num_asked) + " places for " + what +
                "; allowed: " + std::to_string(num_given) + ", as many as are given");
}

/// Positions so far, and where the next token is.
struct Walk {
  std::span<const TokenId> ids;
  int64_t merge_size;
  MropePositions positions{};
  int32_t next = 0;

  std::size_t token() const { return positions.axes[0].size(); }

  void add(int32_t t, int32_t h, int32_t w) {
    positions.axes[0].push_back(t);
    positions.axes[1].push_back(h);
    positions.axes[2].push_back(w);
  }

  /// One step of time of a grid, whose tokens must all be `id`.
  void add_step(const Grid& grid, TokenId id, const std::string& what) {
    const int64_t rows = grid.h / merge_size, cols = grid.w / merge_size;
    const std::span<const TokenId> rest = ids.subspan(token());
    const auto run = std::ranges::find_if(rest, [id](TokenId other) { return other != id; }) - rest.begin();
    if (run < rows * cols) {
      throw_invalid("prompt: " + what + " has a place of " + std::to_string(run) + " tokens at token " +
                    std::to_string(token()) + "; allowed: " + std::to_string(rows * cols) + ", one for each merged patch");
    }
    for (int64_t i = 0; i < rows * cols; ++i) {
      add(next, next + static_cast<int32_t>(i / cols), next + static_cast<int32_t>(i % cols));
    }
    next += static_cast<int32_t>(std::max(rows, cols));
  }
};

/// The pictures, or the steps of videos, that are still to come.
class Steps {
 public:
  Steps(std::span<const Grid> grids, const char* what) : grids_(grids), what_(what) {}

  void take(Walk& walk, TokenId id) {
    if (grid_ == grids_.size()) {
      throw_invalid("prompt: token " + std::to_string(walk.token()) + " is a place for " + what_ + " " +
                    std::to_string(grid_ + 1) + "; allowed: at most " + std::to_string(grids_.size()) +
                    ", as many as are given");
    }
    const Grid& grid = grids_[grid_];
    walk.add_step(grid, id, what_ + " " + std::to_string(grid_ + 1));
    if (++step_ < grid.t) return;
    step_ = 0;
    ++grid_;
  }

  void require_none_left() const {
    if (grid_ == grids_.size()) return;
    throw_invalid("prompt: it has no place for step " + std::to_string(step_ + 1) + " of " + what_ + " " +
                  std::to_string(grid_ + 1) + "; allowed: places for all that are given");
  }

 private:
  std::span<const Grid> grids_;
  std::string what_;
  std::size_t grid_ = 0;
  int64_t step_ = 0;  // of the grid
};

}  // namespace

std::vector<TokenId> expand_placeholders(std::span<const TokenId> ids, const VisionTokens& tokens, const PromptGrids& media,
                                         const Tokenize& tokenize) {
  check_count(ids, tokens.image, media.images.size(), "pictures");
  check_count(ids, tokens.video, media.videos.size(), "videos");
  std::vector<TokenId> expanded;
  std::size_t image = 0, video = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == tokens.image) {
      const Grid& grid = media.images[image++];
      append(expanded, tokens.image, grid.t * step_tokens(grid, media.merge_size));
    } else if (ids[i] == tokens.video) {
      const bool has_frame =
          i > 0 && i + 1 < ids.size() && ids[i - 1] == tokens.vision_start && ids[i + 1] == tokens.vision_end;
      if (has_frame) {
        expanded.pop_back();
        ++i;
      }
      append_video(expanded, media.videos[video++], tokens, media.merge_size, tokenize);
    } else {
      expanded.push_back(ids[i]);
    }
  }
  return expanded;
}

MropePositions mrope_positions(std::span<const TokenId> ids, const VisionTokens& tokens, std::span<const Grid> images,
                               std::span<const Grid> videos, int64_t merge_size) {
  Walk walk{.ids = ids, .merge_size = merge_size};
  Steps images_left(images, "picture"), videos_left(videos, "video");
  while (walk.token() < ids.size()) {
    const TokenId id = ids[walk.token()];
    if (id == tokens.image) {
      images_left.take(walk, id);
    } else if (id == tokens.video) {
      videos_left.take(walk, id);
    } else {
      walk.add(walk.next, walk.next, walk.next);
      ++walk.next;
    }
  }
  images_left.require_none_left();
  videos_left.require_none_left();
  walk.positions.delta = walk.next - static_cast<int32_t>(ids.size());
  return std::move(walk.positions);
}

}  // namespace ferry
