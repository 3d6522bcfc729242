#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/media_intake.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/prompt_pools.h"
#include "runtime/server/prompt_task.h"

// Pictures and videos of one request, whatever protocol brought them.

namespace ferry {

/// A picture's file: its bytes, or where it is; exactly one of the two is not empty.
struct MediaFile {
  std::string_view data;
  std::string_view url;  // data:…, or http(s)://… on another host
};

/// A picture, or a video as its frames. Borrows.
struct MediaPart {
  Medium::Kind kind = Medium::Kind::kPicture;
  std::vector<MediaFile> files;  // one for a picture
  std::optional<double> fps;     // of a video's frames
};

/// Counts what a request has, before anything is decoded.
class MediaCount {
 public:
  explicit MediaCount(const ServerLimits& limits) : limits_(limits) {}

  /// Throws Error{kInvalidArgument} for more pictures and videos, or more frames of videos, than a request may have.
  void add_picture() { add(0); }
  void add_video(int64_t num_frames) { add(num_frames); }

 private:
  void add(int64_t num_frames);

  const ServerLimits& limits_;
  int64_t num_media_ = 0, num_frames_ = 0;
};

/// The step that makes a prompt with media: kFetch if any of `urls` is on another host that may be asked, else kMedia. It has
/// no key yet.
PromptStep step_of_media(std::span<const std::string_view> urls, const ServerLimits& limits);

/// Reads the media of one request, one after another. For one thread.
class RequestMedia {
 public:
  /// `task.check_in` is called before each file and while it is fetched and decoded; what it throws ends the reading, as the
  /// deadline does a fetch.
  RequestMedia(const EngineClient& engine, const PromptTask& task)
      : engine_(engine), task_(task), fetch_time_left_(task.limits.picture_fetch_s) {}

  /// Throws as MediaIntake's methods and fetch_picture() do; messages name it "picture 2", "video 1, frame 3".
  void read(const MediaPart& part);

  const std::vector<std::shared_ptr<const Medium>>& media() const { return media_; }
  /// A prompt with what was read at its placeholders. Throws as MediaIntake::place() does.
  MediaPrompt place(std::vector<TokenId> ids) const;

 private:
  std::vector<std::byte> fetch(const std::string& url, const std::string& name);
  std::shared_ptr<const Medium> read_picture(const MediaFile& picture, const std::string& name);
  std::shared_ptr<const Medium> read_video(const MediaPart& video, const std::string& name);
  std::span<const std::byte> bytes_of(const MediaFile& file, std::vector<std::byte>& fetched, const std::string& name);
  IntakeTask intake_task() const;

  const EngineClient& engine_;
  const PromptTask& task_;
  std::chrono::duration<double> fetch_time_left_;  // for all files that are still to come from other hosts
  int num_pictures_ = 0, num_videos_ = 0;
  std::vector<std::shared_ptr<const Medium>> media_;
};

}  // namespace ferry
