#include "runtime/schedule/request_state.h"

namespace ferry {

const char* request_state_name(RequestState state) {
  switch (state) {
    case RequestState::kQueued: return "queued";
    case RequestState::kWaitingForMedia: return "waiting_for_media";
    case RequestState::kPrefilling: return "prefilling";
    case RequestState::kDecoding: return "decoding";
    case RequestState::kPreempted: return "preempted";
    case RequestState::kFinished: return "finished";
  }
  return "";
}

bool may_become(RequestState from, RequestState to) {
  using enum RequestState;
  switch (from) {
    case kQueued: return to == kWaitingForMedia || to == kPrefilling || to == kFinished;
    case kWaitingForMedia: return to == kPrefilling || to == kPreempted || to == kFinished;
    case kPrefilling: return to == kDecoding || to == kPreempted || to == kFinished;
    case kDecoding: return to == kPreempted || to == kFinished;
    case kPreempted: return to == kWaitingForMedia || to == kPrefilling || to == kDecoding || to == kFinished;
    case kFinished: return false;
  }
  return false;
}

}  // namespace ferry
