#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/vision/vision_plan.h"
#include "runtime/text/tokenizer.h"
#include "runtime/vision/medium.h"
#include "runtime/vision/prompt_media.h"
#include "runtime/vision/shared_pictures.h"

namespace ferry {

/// The request that a file is read for.
struct IntakeTask {
  std::function<void()> check_in = {};  // called now and then (may be empty); what it throws ends the reading
  int64_t held_bytes = 0;               // of its media that were read before, each counted once
};

/// Turns the files of pictures and videos into media, and puts media at their places in a prompt. If a picture's file comes
/// again while its medium is held, the result is the same medium. Any thread may call any method.
class MediaIntake {
 public:
  /// `max_open_bytes`: of all media that are held at once. `tokenizer` may be null: then there are no videos, whose time stamps
  /// are text. Throws as MediumReader does; config and tokenizer outlive it.
  MediaIntake(const VisionConfig& config, const Tokenizer* tokenizer, MediumReader::Limits limits, int64_t max_open_bytes);

  /// Throws as MediumReader's, Error{kInvalidArgument} where a request's media are too much even alone, and
  /// {kResourceExhausted} where they are together with what others hold.
  std::shared_ptr<const Medium> read_picture(std::span<const std::byte> file, const std::string& name,
                                             const IntakeTask& task = {}) const;
  std::shared_ptr<const Medium> read_video(const VideoFiles& files, const std::string& name, const IntakeTask& task = {}) const;

  /// What stands for a picture or video in text. Throws Error{kFailedPrecondition} without a tokenizer.
  std::string placeholder(Medium::Kind kind) const;

  /// Throws as place_media() does.
  MediaPrompt place(std::span<const TokenId> ids, std::span<const std::shared_ptr<const Medium>> media) const;

  const MediumReader& reader() const { return reader_; }

 private:
  std::shared_ptr<const Medium> hold(Medium medium, const std::string& name, const IntakeTask& task) const;

  const VisionConfig& config_;
  const Tokenizer* tokenizer_;
  MediumReader reader_;
  const int64_t max_open_bytes_;
  std::shared_ptr<std::atomic<int64_t>> open_bytes_;  // media may outlive this
  mutable SharedPictures shared_;
};

}  // namespace ferry
