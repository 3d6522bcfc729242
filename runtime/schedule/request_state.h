#pragma once

#include <cstdint>

namespace ferry {

/// Where an accepted request is in its life:
///
///   queued -> waiting for media -> prefilling -> decoding -> finished
///
/// A text skips waiting for media; any state may end in finished. From prefilling and decoding a request may be preempted, and
/// goes on from there to either: what could not be saved is computed anew, the prompt first. One that waits for media may be
/// preempted, too, and waits for them again, where somebody more urgent needs its slot.
enum class RequestState : uint8_t {
  kQueued,           // has nothing yet
  kWaitingForMedia,  // has a slot; its pictures and videos are not encoded
  kPrefilling,       // has a slot and blocks for what is computed of its known tokens; no step samples for it
  kDecoding,         // likewise, and every step that it is part of gives it a token
  kPreempted,        // has no blocks, which others needed, and perhaps no slot
  kFinished,
};
inline constexpr int kNumRequestStates = 6;

/// "queued", "waiting_for_media", "prefilling", "decoding", "preempted", "finished".
const char* request_state_name(RequestState state);

/// Whether a request in `from` may become one in `to`.
bool may_become(RequestState from, RequestState to);

}  // namespace ferry
