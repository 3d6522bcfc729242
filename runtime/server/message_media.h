#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ferry/v1/inference.pb.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/prompt_task.h"
#include "runtime/server/request_media.h"

// Pictures and videos of a request of ferry.v1.Inference/Generate.

namespace ferry {

/// Refuses more of them than may be, and parts that hold nothing, before anything is decoded. Throws Error{kInvalidArgument}.
void check_media(const v1::GenerateRequest& message, const ServerLimits& limits);

/// Whether there is any.
bool has_media(const v1::GenerateRequest& message);

/// The URLs of all files that have one. They borrow from the message.
std::vector<std::string_view> urls_of_media(const v1::GenerateRequest& message);

/// Reads the media of one request, part by part. For one thread.
class MessageMedia {
 public:
  /// As RequestMedia's.
  MessageMedia(const EngineClient& engine, const PromptTask& task) : engine_(engine), media_(engine, task) {}

  /// The text of a message whose pictures and videos are read: each is its placeholder there. Throws as RequestMedia::read().
  std::string read(const v1::ChatMessage& message);
  /// A part that is not text.
  void read(const v1::Part& part);

  const std::vector<std::shared_ptr<const Medium>>& media() const { return media_.media(); }

 private:
  const EngineClient& engine_;
  RequestMedia media_;
};

}  // namespace ferry
