#include "runtime/vision/medium.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/vision/resize.h"

namespace ferry {
namespace {

/// Of the kind, the size and all pixels. Times are text and no part of it.
MediumDigest digest_of(const Medium& medium) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  FERRY_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1) << "SHA-256";
  const std::array<int64_t, 4> shape{static_cast<int64_t>(medium.kind), medium.grid.t, medium.grid.h, medium.grid.w};
  const auto add = [&](const void* bytes, std::size_t size) {
    FERRY_CHECK_EQ(EVP_DigestUpdate(context.get(), bytes, size), 1);
  };
  add(shape.data(), sizeof(shape));
  for (const Picture& frame : medium.frames) add(frame.rgb.data(), frame.rgb.size());
  MediumDigest digest{};
  FERRY_CHECK_EQ(EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr), 1);
  return digest;
}

FrameSize size_of(const Picture& picture) { return {.height = picture.height, .width = picture.width}; }

Picture resize(const Picture& picture, FrameSize size) { return resize_bicubic(picture, size.width, size.height); }

Grid grid_of(int64_t steps, FrameSize size, const PictureProcessor& p) {
  return {.t = steps, .h = size.height / p.patch_size, .w = size.width / p.patch_size};
}

/// `p` with no more pixels than so many tokens have.
PictureProcessor bounded(PictureProcessor p, int64_t max_tokens, int64_t num_frames) {
  p.max_pixels = std::min(p.max_pixels, max_tokens * p.factor() * p.factor() * num_frames);
  return p;
}

}  // namespace

int64_t Medium::num_bytes() const {
  int64_t num_bytes = 0;
  for (const Picture& frame : frames) num_bytes += std::ssize(frame.rgb);
  return num_bytes;
}

MediumReader::MediumReader(PictureProcessor pictures, VideoProcessor videos, Limits limits)
    : pictures_(pictures), videos_(videos), limits_(limits) {
  const auto fewest = [](const PictureProcessor& p) {
    return (p.min_pixels + p.factor() * p.factor() - 1) / (p.factor() * p.factor());
  };
  // Each side is rounded up to whole blocks, so the smallest picture may have some blocks more: twice as many always do.
  const int64_t lowest = 2 * std::max(fewest(pictures_), fewest(videos_.frames));
  if (limits_.max_tokens < lowest) {
    throw_invalid("--picture-tokens is " + std::to_string(limits_.max_tokens) + "; allowed: 0 (no pictures), or at least " +
                  std::to_string(lowest) + ", as the checkpoint's smallest pictures may have");
  }
}

Medium MediumReader::read_picture(std::span<const std::byte> file, const std::string& name) const {
  const Picture picture = decode_picture(file, limits_.picture, name);
  const FrameSize size = picture_size(size_of(picture), bounded(pictures_, limits_.max_tokens, 1), name);
  Medium medium{.kind = Medium::Kind::kPicture, .grid = grid_of(1, size, pictures_)};
  medium.frames.push_back(resize(picture, size));
  medium.digest = digest_of(medium);
  return medium;
}

Medium MediumReader::read_video(const VideoFiles& files, const std::string& name) const {
  const int64_t num_files = files.num_frames, depth = videos_.frames.temporal_patch_size;
  if (num_files < 1 || num_files > limits_.max_frames) {
    throw_invalid(name + ": it has " + std::to_string(num_files) + " frames; allowed: 1 to " +
                  std::to_string(limits_.max_frames));
  }
  const double fps = files.fps.value_or(videos_.fps);
  if (!(std::isfinite(fps) && fps > 0)) {
    throw_invalid(name + ": fps is " + std::to_string(fps) + "; allowed: a positive number of frames a second");
  }
  const std::vector<int64_t> sampled = sample_frames(num_files, fps, videos_);
  const PictureProcessor processor =
      bounded(videos_.frames, limits_.max_tokens, (std::ssize(sampled) + depth - 1) / depth * depth);
  Medium medium{.kind = Medium::Kind::kVideo, .times = step_times(sampled, fps, depth)};
  FrameSize first, size;
  for (const int64_t i : sampled) {
    const Picture frame = decode_picture(files.frame(i), limits_.picture, name + ", frame " + std::to_string(i));
    if (medium.frames.empty()) {
      first = size_of(frame);
      size = video_size(first, std::ssize(sampled), processor, name);
    }
    check_frame(size_of(frame), first, i, name);
    medium.frames.push_back(resize(frame, size));
  }
  medium.grid = grid_of(std::ssize(medium.times), size, processor);
  medium.digest = digest_of(medium);
  return medium;
}

Patches MediumReader::patches_of(const Medium& medium, int64_t first_step, int64_t num_steps) const {
  const PictureProcessor& processor = medium.kind == Medium::Kind::kVideo ? videos_.frames : pictures_;
  const int64_t first = first_step * processor.temporal_patch_size;
  const int64_t count = std::min(num_steps * processor.temporal_patch_size, std::ssize(medium.frames) - first);
  return cut_patches(std::span(medium.frames).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                     processor);
}

}  // namespace ferry
