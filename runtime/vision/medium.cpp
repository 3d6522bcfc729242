#include "runtime/vision/medium.h"

#include <openssl/evp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/vision/resize.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kTurnTick{20};  // between two looks at whether to wait on

/// A SHA-256 in progress.
class Sha256 {
 public:
  Sha256() { FERRY_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1) << "SHA-256"; }

  void add(std::span<const std::byte> bytes) {
    FERRY_CHECK_EQ(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), 1);
  }
  MediumDigest finish() {
    MediumDigest digest{};
    FERRY_CHECK_EQ(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr), 1);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

/// Of the kind, the size and all pixels. Times are text and no part of it.
MediumDigest digest_of(const Medium& medium) {
  Sha256 hash;
  const std::array<int64_t, 4> shape{static_cast<int64_t>(medium.kind), medium.grid.t, medium.grid.h, medium.grid.w};
  hash.add(std::as_bytes(std::span(shape)));
  for (const Picture& frame : medium.frames) hash.add(std::as_bytes(std::span(frame.rgb)));
  return hash.finish();
}

Grid grid_of(int64_t steps, const Picture& frame, const PictureProcessor& p) {
  return {.t = steps, .h = frame.height / p.patch_size, .w = frame.width / p.patch_size};
}

/// `p` with no more pixels than so many tokens have.
PictureProcessor bounded(PictureProcessor p, int64_t max_tokens, int64_t num_frames) {
  p.max_pixels = std::min(p.max_pixels, max_tokens * p.factor() * p.factor() * num_frames);
  return p;
}

std::string name_of_frame(const VideoFiles& files, int64_t frame_idx, const std::string& name) {
  return files.frame_name ? files.frame_name(frame_idx) : name + ", frame " + std::to_string(frame_idx);
}

}  // namespace

MediumDigest digest_of_file(std::span<const std::byte> file) {
  Sha256 hash;
  hash.add(file);
  return hash.finish();
}

int64_t Medium::num_bytes() const {
  int64_t num_bytes = 0;
  for (const Picture& frame : frames) num_bytes += std::ssize(frame.rgb);
  return num_bytes;
}

MediumReader::MediumReader(PictureProcessor pictures, VideoProcessor videos, Limits limits)
    : pictures_(pictures), videos_(videos), limits_(limits) {
  const int64_t lowest = fewest_tokens(pictures_, videos_);
  if (limits_.max_tokens < lowest) {
    throw_invalid("--picture-tokens is " + std::to_string(limits_.max_tokens) + "; allowed: 0 (no pictures), or at least " +
                  std::to_string(lowest) + ", as the checkpoint's smallest pictures may have");
  }
}

int64_t MediumReader::fewest_tokens(const PictureProcessor& pictures, const VideoProcessor& videos) {
  const auto fewest = [](const PictureProcessor& p) {
    return (p.min_pixels + p.factor() * p.factor() - 1) / (p.factor() * p.factor());
  };
  return std::max(fewest(pictures), fewest(videos.frames));
}

/// The one who may decode.
std::unique_lock<std::timed_mutex> MediumReader::wait_for_turn(const std::function<void()>& check_in) const {
  if (!check_in) return std::unique_lock(decoding_);
  std::unique_lock turn(decoding_, std::defer_lock);
  while (!turn.try_lock_for(kTurnTick)) check_in();
  return turn;
}

Picture MediumReader::read_frame(std::span<const std::byte> file, const std::string& name, const Resizing& size,
                                 const std::function<void()>& check_in) const {
  const std::unique_lock turn = wait_for_turn(check_in);
  const Picture picture = decode_picture(file, limits_.picture, name, check_in);
  const FrameSize resized = size(FrameSize{.height = picture.height, .width = picture.width});
  const int64_t num_tokens = resized.height / pictures_.factor() * (resized.width / pictures_.factor());
  if (num_tokens > limits_.max_tokens) {  // one side is too short to shrink, or both are rounded up
    throw_invalid(name + ": " + std::to_string(picture.width) + " x " + std::to_string(picture.height) + " pixels become " +
                  std::to_string(num_tokens) + " tokens; allowed: at most " + std::to_string(limits_.max_tokens) +
                  " (--picture-tokens, or the room of a prompt)");
  }
  return resize_bicubic(picture, resized.width, resized.height, check_in);
}

Medium MediumReader::read_picture(std::span<const std::byte> file, const std::string& name,
                                  const std::function<void()>& check_in) const {
  const PictureProcessor processor = bounded(pictures_, limits_.max_tokens, 1);
  Medium medium{.kind = Medium::Kind::kPicture};
  const auto size = [&](FrameSize given) { return picture_size(given, processor, name); };
  medium.frames.push_back(read_frame(file, name, size, check_in));
  medium.grid = grid_of(1, medium.frames.front(), pictures_);
  medium.digest = digest_of(medium);
  return medium;
}

Medium MediumReader::read_video(const VideoFiles& files, const std::string& name, const std::function<void()>& check_in) const {
  const int64_t depth = videos_.frames.temporal_patch_size;
  const int64_t max_frames = std::min(limits_.max_frames, files.max_frames.value_or(limits_.max_frames));
  check_num_frames(files.num_frames, depth, max_frames, name);
  if (files.fps) check_fps(*files.fps, name);
  const double fps = files.fps.value_or(videos_.fps);
  const std::vector<int64_t> sampled = sample_frames(files.num_frames, fps, videos_);
  const int64_t num_frames = std::ssize(sampled);
  // Whole patches: video_size() counts so many frames or more, whichever way it rounds an odd number.
  const PictureProcessor processor = bounded(videos_.frames, limits_.max_tokens, num_frames / depth * depth);
  Medium medium{.kind = Medium::Kind::kVideo, .times = step_times(sampled, fps, depth)};
  FrameSize first;
  for (const int64_t i : sampled) {
    const std::string frame = name_of_frame(files, i, name);
    const auto size = [&](FrameSize given) {
      if (medium.frames.empty()) first = given;
      if (given != first) check_frame(given, first, frame, name_of_frame(files, sampled.front(), name));
      return video_size(given, num_frames, processor, frame);
    };
    medium.frames.push_back(read_frame(files.frame(i), frame, size, check_in));
  }
  medium.grid = grid_of(std::ssize(medium.times), medium.frames.front(), processor);
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
