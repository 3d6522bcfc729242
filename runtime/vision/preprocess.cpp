#include "runtime/vision/preprocess.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/vision/resize.h"

namespace ferry {
namespace {

/// Python's round(): half to even, the mode that nearbyint() has unless somebody changes it.
int64_t round_half_even(double x) { return static_cast<int64_t>(std::nearbyint(x)); }

int64_t round_to(int64_t side, int64_t factor) {
  return round_half_even(static_cast<double>(side) / static_cast<double>(factor)) * factor;
}

int64_t shrink(int64_t side, double by, int64_t factor) {
  const double blocks = std::floor(static_cast<double>(side) / by / static_cast<double>(factor));
  return std::max(factor, static_cast<int64_t>(blocks) * factor);
}

int64_t grow(int64_t side, double by, int64_t factor) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(side) * by / static_cast<double>(factor))) * factor;
}

void check_ratio(FrameSize size, const std::string& name) {
  constexpr double kMaxRatio = 200.0;
  const auto [shorter, longer] = std::minmax(size.height, size.width);
  if (shorter > 0 && static_cast<double>(longer) / static_cast<double>(shorter) <= kMaxRatio) return;
  throw_invalid(name + ": it has " + std::to_string(size.width) + " x " + std::to_string(size.height) +
                " pixels; allowed: a longer side of at most 200 times the shorter one");
}

/// smart_resize() of transformers: `steps` is 1 for a picture; for a video the frames rounded to whole patches, and
/// `num_frames` the frames themselves.
FrameSize fit(FrameSize size, int64_t steps, int64_t num_frames, const PictureProcessor& p) {
  const int64_t factor = p.factor();
  FrameSize fitted{.height = round_to(size.height, factor), .width = round_to(size.width, factor)};
  const double pixels = static_cast<double>(num_frames) * static_cast<double>(size.height) * static_cast<double>(size.width);
  const int64_t fitted_pixels = steps * fitted.height * fitted.width;
  if (fitted_pixels > p.max_pixels) {
    const double by = std::sqrt(pixels / static_cast<double>(p.max_pixels));
    fitted = {.height = shrink(size.height, by, factor), .width = shrink(size.width, by, factor)};
  } else if (fitted_pixels < p.min_pixels) {
    const double by = std::sqrt(static_cast<double>(p.min_pixels) / pixels);
    fitted = {.height = grow(size.height, by, factor), .width = grow(size.width, by, factor)};
  }
  return fitted;
}

/// The normalised value of each byte, by channel: (u - mean) / std_dev in fp32, both scaled to bytes.
struct ByteValues {
  std::array<std::array<float, 256>, 3> of;  // [channel][byte]

  explicit ByteValues(const PictureProcessor& p) {
    const auto scale = static_cast<float>(1.0 / p.rescale_factor);
    for (std::size_t c = 0; c < 3; ++c) {
      const float mean = p.mean[c] * scale, std_dev = p.std_dev[c] * scale;
      for (std::size_t u = 0; u < 256; ++u) of[c][u] = (static_cast<float>(u) - mean) / std_dev;
    }
  }
};

/// Writes the pixels of a frame into slice `frame_idx` of the patches of one step. `to` [h * w, patch_cols].
void cut_frame(const Picture& frame, const PictureProcessor& p, const ByteValues& values, int64_t frame_idx, float* to) {
  const int64_t side = p.patch_size, merge = p.merge_size, blocks_w = frame.width / p.factor();
  const int64_t channel_stride = p.temporal_patch_size * side * side;
  for (int64_t y = 0; y < frame.height; ++y) {
    const int64_t patch_row = y / side;
    const uint8_t* row = frame.row(y);
    for (int64_t patch_col = 0; patch_col < frame.width / side; ++patch_col) {
      const int64_t block = patch_row / merge * blocks_w + patch_col / merge;
      const int64_t patch = (block * merge + patch_row % merge) * merge + patch_col % merge;
      float* out = to + patch * p.patch_cols() + frame_idx * side * side + y % side * side;
      const uint8_t* pixels = row + patch_col * side * 3;
      for (int64_t c = 0; c < 3; ++c) {
        const auto& of_channel = values.of[static_cast<std::size_t>(c)];
        for (int64_t x = 0; x < side; ++x) out[c * channel_stride + x] = of_channel[pixels[3 * x + c]];
      }
    }
  }
}

Patches make_empty(int64_t steps, FrameSize size, const PictureProcessor& p) {
  Patches patches{.grid = {.t = steps, .h = size.height / p.patch_size, .w = size.width / p.patch_size}, .values = {}};
  patches.values.resize(static_cast<std::size_t>(patches.grid.num_patches() * p.patch_cols()));
  return patches;
}

}  // namespace

FrameSize picture_size(FrameSize size, const PictureProcessor& processor, const std::string& name) {
  check_ratio(size, name);
  return fit(size, 1, 1, processor);
}

FrameSize video_size(FrameSize size, int64_t num_frames, const PictureProcessor& processor, const std::string& name) {
  const int64_t factor = processor.factor(), depth = processor.temporal_patch_size;
  if (num_frames < depth) {
    throw_invalid(name + ": it has " + std::to_string(num_frames) + " frames; allowed: " + std::to_string(depth) + " or more");
  }
  if (size.height <= 0 || size.width <= 0) check_ratio(size, name);
  if (size.height < factor || size.width < factor) {
    const double scale = std::max(static_cast<double>(factor) / static_cast<double>(size.height),
                                  static_cast<double>(factor) / static_cast<double>(size.width));
    size = {.height = static_cast<int64_t>(static_cast<double>(size.height) * scale),
            .width = static_cast<int64_t>(static_cast<double>(size.width) * scale)};
  }
  check_ratio(size, name);
  return fit(size, round_to(num_frames, depth), num_frames, processor);
}

Patches cut_patches(std::span<const Picture> frames, const PictureProcessor& processor) {
  const int64_t depth = processor.temporal_patch_size, num_frames = std::ssize(frames);
  FERRY_CHECK_LE(1, num_frames);
  const FrameSize size{.height = frames[0].height, .width = frames[0].width};
  const ByteValues values(processor);
  Patches patches = make_empty((num_frames + depth - 1) / depth, size, processor);
  const int64_t step_values = patches.grid.step_patches() * processor.patch_cols();
  for (int64_t i = 0; i < patches.grid.t * depth; ++i) {
    const Picture& frame = frames[static_cast<std::size_t>(std::min(i, num_frames - 1))];
    FERRY_CHECK(frame.height == size.height && frame.width == size.width) << "frame " << i;
    cut_frame(frame, processor, values, i % depth, patches.values.data() + i / depth * step_values);
  }
  return patches;
}

Patches make_patches(const Picture& picture, const PictureProcessor& processor, const std::string& name) {
  const FrameSize size = picture_size({.height = picture.height, .width = picture.width}, processor, name);
  const Picture resized = resize_bicubic(picture, size.width, size.height);
  return cut_patches({&resized, 1}, processor);
}

void check_frame(FrameSize size, FrameSize first, const std::string& name, const std::string& first_name) {
  if (size == first) return;
  throw_invalid(name + ": it has " + std::to_string(size.width) + " x " + std::to_string(size.height) + " pixels; allowed: " +
                std::to_string(first.width) + " x " + std::to_string(first.height) + " as " + first_name);
}

void check_num_frames(int64_t num_frames, int64_t fewest, int64_t most, const std::string& name) {
  if (num_frames >= fewest && num_frames <= most) return;
  throw_invalid(name + ": it has " + std::to_string(num_frames) + " frames; allowed: " + std::to_string(fewest) + " to " +
                std::to_string(most));
}

void check_fps(double fps, const std::string& name) {
  if (fps >= kLowestFps && fps <= kHighestFps) return;
  std::array<char, 32> value{};
  std::snprintf(value.data(), value.size(), "%g", fps);
  throw_invalid(name + ": fps is '" + value.data() + "'; allowed: " + kAllowedFps);
}

Patches make_video_patches(std::span<const Picture> frames, const PictureProcessor& processor, const std::string& name) {
  FrameSize given;
  if (!frames.empty()) given = {.height = frames[0].height, .width = frames[0].width};
  for (std::size_t i = 0; i < frames.size(); ++i)
    check_frame({.height = frames[i].height, .width = frames[i].width}, given, name + ", frame " + std::to_string(i),
                name + ", frame 0");
  const FrameSize size = video_size(given, std::ssize(frames), processor, name);
  std::vector<Picture> resized;
  for (const Picture& frame : frames) resized.push_back(resize_bicubic(frame, size.width, size.height));
  return cut_patches(resized, processor);
}

std::vector<int64_t> sample_frames(int64_t num_frames, double source_fps, const VideoProcessor& processor) {
  FERRY_CHECK(num_frames > 0 && source_fps > 0);
  // The clamp is to double first: a tiny rate would give more frames than an integer holds.
  const double wanted =
      std::min(static_cast<double>(num_frames) / source_fps * processor.fps, static_cast<double>(processor.max_frames));
  const int64_t count =
      std::min({std::max(static_cast<int64_t>(wanted), processor.min_frames), processor.max_frames, num_frames});
  // As numpy.linspace: the last one exactly, the others as multiples of a rounded step.
  std::vector<int64_t> frames(static_cast<std::size_t>(count));
  const double step = count > 1 ? static_cast<double>(num_frames - 1) / static_cast<double>(count - 1) : 0.0;
  for (int64_t i = 0; i < count; ++i) {
    frames[static_cast<std::size_t>(i)] = round_half_even(static_cast<double>(i) * step);
  }
  if (count > 1) frames.back() = num_frames - 1;
  return frames;
}

std::vector<double> step_times(std::span<const int64_t> frames, double source_fps, int64_t temporal_patch_size) {
  FERRY_CHECK(temporal_patch_size > 0 && source_fps > 0);
  std::vector<double> times;
  const auto time_of = [&](std::size_t i) { return static_cast<double>(frames[std::min(i, frames.size() - 1)]) / source_fps; };
  const auto depth = static_cast<std::size_t>(temporal_patch_size);
  for (std::size_t i = 0; i < frames.size(); i += depth) times.push_back((time_of(i) + time_of(i + depth - 1)) / 2);
  return times;
}

}  // namespace ferry
