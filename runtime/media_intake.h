#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/vision/vision_plan.h"
#include "runtime/text/tokenizer.h"
#include "runtime/vision/medium.h"
#include "runtime/vision/prompt_media.h"

namespace ferry {

/// Where pictures and videos come in: files become media, and media find their places in a prompt. Any thread may call any
/// method.
class MediaIntake {
 public:
  /// `max_open_bytes`: of all media that are held at once. `tokenizer` may be null: then there are no videos, whose time stamps
  /// are text. Throws as MediumReader does; config and tokenizer outlive it.
  MediaIntake(const VisionConfig& config, const Tokenizer* tokenizer, MediumReader::Limits limits, int64_t max_open_bytes);

  /// Throws as MediumReader's, and Error{kResourceExhausted} where too much is held already.
  std::shared_ptr<const Medium> read_picture(std::span<const std::byte> file, const std::string& name) const;
  std::shared_ptr<const Medium> read_video(const VideoFiles& files, const std::string& name) const;

  /// What stands for a picture or video in text. Throws Error{kFailedPrecondition} without a tokenizer.
  std::string placeholder(Medium::Kind kind) const;

  /// Throws as place_media() does.
  MediaPrompt place(std::span<const TokenId> ids, std::span<const std::shared_ptr<const Medium>> media) const;

  const MediumReader& reader() const { return reader_; }

 private:
  std::shared_ptr<const Medium> hold(Medium medium) const;

  const VisionConfig& config_;
  const Tokenizer* tokenizer_;
  MediumReader reader_;
  const int64_t max_open_bytes_;
  std::shared_ptr<std::atomic<int64_t>> open_bytes_;  // media may outlive this
};

}  // namespace ferry
