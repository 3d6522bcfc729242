#pragma once

#include "comm/rendezvous/rendezvous.h"
#include "tests/support/eventually.h"

namespace ferry::suite {

/// With newcomers that all speak, however long that takes.
inline constexpr RendezvousPatience kPatient{.proof = kTestLimit, .join = kTestLimit, .grace = kTestLimit};

}  // namespace ferry::suite
