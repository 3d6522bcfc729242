#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/vision/grid.h"
#include "runtime/vision/picture.h"
#include "runtime/vision/placeholders.h"
#include "runtime/vision/preprocess.h"

// From files to what a prompt may hold beside text. Decoding and resizing are done where a request comes in; the patches, 24
// times as large as the pixels, are cut when the tower's turn comes.

namespace ferry {

/// SHA-256 of what the tower would see, so that a stranger cannot make two pictures that are taken for one.
using MediumDigest = std::array<std::byte, 32>;

/// The SHA-256 of a file.
MediumDigest digest_of_file(std::span<const std::byte> file);

/// A picture, or the sampled frames of a video, in the size that the tower reads.
struct Medium {
  enum class Kind : uint8_t { kPicture, kVideo };

  Kind kind = Kind::kPicture;
  Grid grid;
  std::vector<Picture> frames;  // of a picture one
  std::vector<double> times;    // [grid.t] seconds, of a video
  MediumDigest digest{};

  int64_t num_bytes() const;
};

/// The files of a video, frame by frame.
struct VideoFiles {
  int64_t num_frames = 0;
  std::function<std::span<const std::byte>(int64_t frame_idx)> frame;  // asked for those looked at; valid until the next
  std::optional<double>
      fps;  // of the frames; absent: they are what is to be looked at, at the rate that the checkpoint samples
  std::function<std::string(int64_t frame_idx)> frame_name;  // in messages; empty: that of the video with its number
  std::optional<int64_t> max_frames;                         // of this video; absent: the reader's limit alone
};

/// Decodes and resizes as the checkpoint's processors do. Any thread may call; one file is decoded at a time, since a large one
/// takes 11 bytes a pixel for a while.
class MediumReader {
 public:
  struct Limits {
    PictureLimits picture;      // of every file
    int64_t max_tokens = 4096;  // of a picture, or of a video's step of time: larger ones are scaled down to it
    int64_t max_frames = 4096;  // of a video's files
  };

  /// Throws Error{kInvalidArgument} if fewer tokens are allowed than the checkpoint's smallest pictures have.
  MediumReader(PictureProcessor pictures, VideoProcessor videos, Limits limits);

  /// `name` begins the messages: "picture 2". `check_in` (if there is one) is called now and then, also while others decode;
  /// what it throws ends the reading. Throws as decode_picture() and picture_size() do.
  Medium read_picture(std::span<const std::byte> file, const std::string& name,
                      const std::function<void()>& check_in = {}) const;
  /// Decodes the sampled frames one after the other. Throws as decode_picture(), video_size() and check_frame() do, and for a
  /// rate out of bounds.
  Medium read_video(const VideoFiles& files, const std::string& name, const std::function<void()>& check_in = {}) const;

  /// Rows for the tower, of some of its steps of time.
  Patches patches_of(const Medium& medium, int64_t first_step, int64_t num_steps) const;

  const Limits& limits() const { return limits_; }

  /// Of the smallest pictures and frames that the processors make.
  static int64_t fewest_tokens(const PictureProcessor& pictures, const VideoProcessor& videos);

 private:
  /// What to resize a frame of this size to.
  using Resizing = std::function<FrameSize(FrameSize given)>;

  std::unique_lock<std::timed_mutex> wait_for_turn(const std::function<void()>& check_in) const;
  Picture read_frame(std::span<const std::byte> file, const std::string& name, const Resizing& size,
                     const std::function<void()>& check_in) const;

  PictureProcessor pictures_;
  VideoProcessor videos_;
  Limits limits_;
  mutable std::timed_mutex decoding_;
};

}  // namespace ferry
