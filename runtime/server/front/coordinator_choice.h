#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ferry {

/// What is known of a coordinator when a call is to be given to one.
struct CoordinatorSight {
  bool may_be_chosen = false;     // it serves, has the port, and has not failed this call
  int64_t num_open = 0;           // calls that it is answering for this front
  int64_t num_chosen = 0;         // calls that it was ever given
  std::size_t cached_pieces = 0;  // of the call's prompt, that it has most likely computed (PrefixMemory)
};

/// Where a call's like were answered before; nothing where that is not known.
struct FormerPlaces {
  std::optional<std::size_t> session;
  std::optional<std::size_t> user;
};

/// Why a coordinator was chosen.
enum class ChoiceReason {
  kSession,   // it has answered the session so far
  kPrefix,    // it has the longest beginning of the prompt
  kUser,      // it has answered the user's last call
  kLoad,      // nobody was favoured
  kOverflow,  // whoever was favoured has too many calls open
};
inline constexpr int kNumChoiceReasons = 5;

struct CoordinatorChoice {
  std::size_t coordinator = 0;
  ChoiceReason reason = ChoiceReason::kLoad;
};

/// A favoured coordinator may have kLoadFactor times the mean of open calls and kLoadSlack more: consistent hashing with
/// bounded loads (arXiv:1608.01350) has the factor; the slack leaves a few calls together, where nobody waits for them.
inline constexpr double kLoadFactor = 1.25;
inline constexpr int64_t kLoadSlack = 4;

/// Which coordinator gets a call: the first that is there and not overloaded of
///
///   1. the session's;
///   2. that which has the longest beginning of the prompt, of several the user's or else the least loaded;
///   3. the user's;
///
/// or else the least loaded one: of the fewest open calls, of several the one that was given the fewest so far, of several the
/// first. Nothing if none may be chosen.
std::optional<CoordinatorChoice> choose_coordinator(std::span<const CoordinatorSight> coordinators, const FormerPlaces& former);

}  // namespace ferry
