#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "ferry/v1/inference.pb.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/backend.h"

// What a request of ferry.v1.Inference/Generate means to the coordinator.

namespace ferry {

/// Refuses what is too large before anything is made of it. Throws Error{kInvalidArgument} that names the field, its size and
/// what is allowed.
void check_bounds(const v1::GenerateRequest& message, const ServerLimits& limits);

/// The most bytes that a request within `limits` and `bounds` can have: what is longer need not be received.
int64_t longest_message(const ServerLimits& limits, const PromptBounds& bounds);

/// How far making a prompt may go.
struct PromptTask {
  const ServerLimits& limits;
  std::function<void()> check_in;  // called now and then; what it throws ends it; may be empty without media
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

/// The prompt's tokens and pictures. Takes time: milliseconds for 10 kB of text, tens of them for a picture. Throws as
/// Backend::encode_text and encode_chat, MessageMedia and MediaIntake::place do.
MediaPrompt prompt_of(const Backend& backend, const v1::GenerateRequest& message, const PromptTask& task);

SamplingParams sampling_of(const v1::Sampling& sampling);

}  // namespace ferry
