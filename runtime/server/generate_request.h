#pragma once

#include <vector>

#include "ferry/v1/inference.pb.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/prompt_task.h"

// What a request of ferry.v1.Inference/Generate means to the coordinator.

namespace ferry {

/// Refuses what is too large before anything is made of it. Throws Error{kInvalidArgument} that names the field, its size and
/// what is allowed.
void check_bounds(const v1::GenerateRequest& message, const ServerLimits& limits);

/// The most bytes that a request within `limits` and `bounds` can have: what is longer need not be received.
int64_t longest_message(const ServerLimits& limits, const PromptBounds& bounds, int64_t vocab_size);

/// The prompt's tokens and pictures. Takes time: milliseconds for 10 kB of text, tens of them for a picture. Throws as
/// EngineClient::encode_text and encode_chat, MessageMedia and MediaIntake::place do.
MediaPrompt prompt_of(const EngineClient& engine, const v1::GenerateRequest& message, const PromptTask& task);

SamplingParams sampling_of(const v1::Sampling& sampling);

}  // namespace ferry
