#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/vision/grid.h"
#include "runtime/vision/picture.h"

// From pictures to the rows that the vision tower reads, as transformers 5.17's Qwen2VLImageProcessor and
// Qwen3VLVideoProcessor make them: resized to whole merge blocks within a budget of pixels, normalised, cut into patches.

namespace ferry {

/// Height and width in pixels.
struct FrameSize {
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const FrameSize&) const = default;
};

/// What preprocessor_config.json says of pictures; the defaults are those of the published models.
struct PictureProcessor {
  int64_t patch_size = 16;          // pixels a side
  int64_t merge_size = 2;           // patches a side of what becomes one token
  int64_t temporal_patch_size = 2;  // frames of a patch
  int64_t min_pixels = 65536;       // of a resized picture ("shortest_edge"); of all frames of a video together
  int64_t max_pixels = 16777216;    // likewise ("longest_edge")
  double rescale_factor = 1.0 / 255.0;
  std::array<float, 3> mean{0.5F, 0.5F, 0.5F};
  std::array<float, 3> std_dev{0.5F, 0.5F, 0.5F};

  int64_t patch_cols() const { return 3 * temporal_patch_size * patch_size * patch_size; }
  /// Pixels a side of a merge block.
  int64_t factor() const { return patch_size * merge_size; }
};

/// Frames a second that a video may be said to have, and in words.
inline constexpr double kLowestFps = 1e-3, kHighestFps = 1e6;
inline constexpr const char* kAllowedFps = "0.001 to 1000000";

/// What video_preprocessor_config.json says beside.
struct VideoProcessor {
  PictureProcessor frames{.min_pixels = 4096, .max_pixels = 25165824};
  double fps = 2.0;  // frames sampled a second
  int64_t min_frames = 4;
  int64_t max_frames = 768;
};

/// Rows for the tower. Patches are ordered by step of time, then block of merge_size x merge_size patches, then row and
/// column in it.
struct Patches {
  Grid grid;
  std::vector<float> values;  // [grid.num_patches(), patch_cols]: channel, frame, row and column of the patch
};

/// The size nearest to a picture's whose sides are whole merge blocks and whose pixels are within the budget; sides are rounded
/// half to even. `name` begins the message. Throws Error{kInvalidArgument} if one side is over 200 times the other.
FrameSize picture_size(FrameSize size, const PictureProcessor& processor, const std::string& name = "picture");
/// Likewise for each of `num_frames` frames. Also throws for fewer frames than a patch has.
FrameSize video_size(FrameSize size, int64_t num_frames, const PictureProcessor& processor, const std::string& name = "video");

/// Throws Error{kInvalidArgument} unless the frame `name` of a video has the size of its first one, `first_name`.
void check_frame(FrameSize size, FrameSize first, const std::string& name, const std::string& first_name);
/// Throws Error{kInvalidArgument} unless a video has from `fewest` to `most` frames.
void check_num_frames(int64_t num_frames, int64_t fewest, int64_t most, const std::string& name);
/// Throws Error{kInvalidArgument} for a rate out of kLowestFps to kHighestFps.
void check_fps(double fps, const std::string& name);

/// Of frames that are resized already, all alike; the last one is repeated to whole patches, so a picture is a video of one.
Patches cut_patches(std::span<const Picture> frames, const PictureProcessor& processor);
/// Throws as picture_size() does.
Patches make_patches(const Picture& picture, const PictureProcessor& processor, const std::string& name = "picture");
/// Of a video whose frames are sampled already. Throws as video_size() and check_frame() do.
Patches make_video_patches(std::span<const Picture> frames, const PictureProcessor& processor,
                           const std::string& name = "video");

/// Which frames of a video of `num_frames` at `source_fps` are looked at: evenly spaced, first and last among them.
std::vector<int64_t> sample_frames(int64_t num_frames, double source_fps, const VideoProcessor& processor);
/// The time in seconds of each step: the mean of its first and last frame's. `frames` are numbers of frames at `source_fps`.
std::vector<double> step_times(std::span<const int64_t> frames, double source_fps, int64_t temporal_patch_size);

}  // namespace ferry
