#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "comm/op.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/types.h"

namespace ferry {

/// A member's place: what it is called for as long as its link lives, under which epoch of the membership, and what else it was
/// told.
struct Joined {
  Rank member;
  uint32_t epoch = 0;
  std::vector<std::byte> instructions;
  FileDescriptor socket{-1};  // connected; the next byte on it is the link's
};

constexpr std::chrono::milliseconds kJoinTryTime{5000};  // RendezvousPatience has the other side's

/// Joins those who meet at `address` (HOST:PORT or unix:NAME; a Rendezvous listens there). `introduction` is what the newcomer
/// says of itself, at most kMaxJoinBytes; `incarnation` tells it from one before it in the same place. Both ends must have the
/// same key, and each proves it to the other.
///
/// Tries again, less and less often, until somebody answers: the order in which processes start does not matter. A try ends
/// after `try_time`, and its place, if it got one, is lost. Throws Error{kInvalidArgument} for an address that is none,
/// {kFailedPrecondition} with the reason if it is refused, {kDeadlineExceeded}, which says what failed last, and {kCancelled} a
/// tenth of a second after `stop` was asked for.
Joined join(const std::string& address, const std::string& key, uint64_t incarnation, std::span<const std::byte> introduction,
            Deadline deadline, const std::stop_token& stop = {}, std::chrono::milliseconds try_time = kJoinTryTime);

}  // namespace ferry
