#pragma once

#include <vector>

#include "runtime/cluster/handshake.h"
#include "runtime/options/engine_options.h"

// What a worker that joins works by: the options of its coordinator, as lines such as "--dtype bf16".

namespace ferry {

/// `terms`: the coordinator's (make_terms), which the worker's must be equal to.
std::vector<Term> make_instructions(std::vector<Term> terms, const EngineOptions& options);

/// A worker's own options, and where the instructions say something, that. Throws Error{kInvalidArgument} for a line that means
/// nothing here.
EngineOptions follow_instructions(EngineOptions own, const std::vector<Term>& instructions);

/// Throws Error{kInvalidArgument} unless a worker that follows them, `own` as the coordinator counts, has the coordinator's
/// terms. Returns what differs though it may, as describe_difference() says it.
std::string check_instructions(const std::vector<Term>& instructions, const std::vector<Term>& own_terms, Rank own);

}  // namespace ferry
