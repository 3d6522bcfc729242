#pragma once

#include "runtime/options/elastic_options.h"
#include "runtime/options/engine_options.h"

namespace ferry {

/// The life of `ferry worker`: it joins the coordinators that listen at some addresses, works by their options, and answers
/// rows until it is told to go, or has no coordinator any more and waited for another one long enough. SIGTERM and SIGINT,
/// which the caller has blocked, mean that its experts go to others first; a second one ends it at once. Returns the exit
/// code; throws Error{kInvalidArgument} for options and checkpoints that do not do, {kFailedPrecondition} with the
/// coordinator's reason if it is refused or sent away, and {kDeadlineExceeded} if nobody listens there.
int run_joining_worker(const EngineOptions& options, const JoinOptions& join);

}  // namespace ferry
