#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ferry/v1/inference.pb.h"
#include "runtime/media_intake.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/prompt_task.h"

// Pictures and videos of a request of ferry.v1.Inference/Generate.

namespace ferry {

/// Refuses more of them than may be, and parts that hold nothing, before anything is decoded. Throws Error{kInvalidArgument}.
void check_media(const v1::GenerateRequest& message, const ServerLimits& limits);

/// Whether there is any.
bool has_media(const v1::GenerateRequest& message);

/// Reads the media of one request, part by part. For one thread.
class MessageMedia {
 public:
  /// `task.check_in` is called before each file and while it is fetched and decoded; what it throws ends the reading, as the
  /// deadline does a fetch.
  MessageMedia(const EngineClient& engine, const PromptTask& task)
      : engine_(engine), task_(task), fetch_time_left_(task.limits.picture_fetch_s) {}

  /// The text of a message whose pictures and videos are read: each is its placeholder there. Throws as MediaIntake's methods
  /// and fetch_picture() do.
  std::string read(const v1::ChatMessage& message);
  /// A part that is not text.
  void read(const v1::Part& part);

  const std::vector<std::shared_ptr<const Medium>>& media() const { return media_; }

 private:
  std::vector<std::byte> fetch(const std::string& url, const std::string& name);
  std::shared_ptr<const Medium> read_picture(const v1::Picture& picture, const std::string& name);
  std::shared_ptr<const Medium> read_video(const v1::Video& video, const std::string& name);
  std::span<const std::byte> bytes_of(const v1::Picture& picture, std::vector<std::byte>& fetched, const std::string& name);
  IntakeTask intake_task() const;

  const EngineClient& engine_;
  const PromptTask& task_;
  std::chrono::duration<double> fetch_time_left_;  // for all files that are still to come from other hosts
  int num_pictures_ = 0, num_videos_ = 0;
  std::vector<std::shared_ptr<const Medium>> media_;
};

}  // namespace ferry
