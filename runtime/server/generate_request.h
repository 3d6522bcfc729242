#pragma once

#include <functional>
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

/// The prompt's tokens. Takes time: milliseconds for 10 kB of text. Throws as Backend::encode_text and encode_chat do.
std::vector<TokenId> prompt_of(const Backend& backend, const v1::GenerateRequest& message,
                               const std::function<void()>& check_in);

SamplingParams sampling_of(const v1::Sampling& sampling);

}  // namespace ferry
