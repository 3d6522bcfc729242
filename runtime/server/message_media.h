#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ferry/v1/inference.pb.h"
#include "runtime/media_intake.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/backend.h"

// Pictures and videos of a request of ferry.v1.Inference/Generate.

namespace ferry {

/// Refuses more of them than may be, and parts that hold nothing, before anything is decoded. Throws Error{kInvalidArgument}.
void check_media(const v1::GenerateRequest& message, const ServerLimits& limits);

/// Whether there is any.
bool has_media(const v1::GenerateRequest& message);

/// Reads the media of one request, part by part. For one thread.
class MessageMedia {
 public:
  /// `check_in` is called before each file; what it throws ends the reading, as the deadline does a fetch.
  MessageMedia(const Backend& backend, const ServerLimits& limits, const std::function<void()>& check_in,
               std::optional<std::chrono::steady_clock::time_point> deadline)
      : backend_(backend), limits_(limits), check_in_(check_in), deadline_(deadline) {}

  /// The text of a message whose pictures and videos are read: each is its placeholder there. Throws as MediaIntake's methods
  /// and fetch_picture() do.
  std::string read(const v1::ChatMessage& message);
  /// A part that is not text.
  void read(const v1::Part& part);

  const std::vector<std::shared_ptr<const Medium>>& media() const { return media_; }

 private:
  std::vector<std::byte> fetch(const std::string& url, const std::string& name) const;
  std::shared_ptr<const Medium> read_picture(const v1::Picture& picture, const std::string& name) const;
  std::shared_ptr<const Medium> read_video(const v1::Video& video, const std::string& name) const;
  std::span<const std::byte> bytes_of(const v1::Picture& picture, std::vector<std::byte>& fetched,
                                      const std::string& name) const;

  const Backend& backend_;
  const ServerLimits& limits_;
  const std::function<void()>& check_in_;
  const std::optional<std::chrono::steady_clock::time_point> deadline_;
  int num_pictures_ = 0, num_videos_ = 0;
  std::vector<std::shared_ptr<const Medium>> media_;
};

}  // namespace ferry
