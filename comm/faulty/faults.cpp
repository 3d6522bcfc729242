#include "comm/faulty/faults.h"

#include <algorithm>
#include <span>

namespace ferry {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

/// 1 ‥ `last`, each power of two as likely as the next.
int64_t draw_ordinal(SeededRandom& random, int64_t last) {
  int64_t bits = 0;
  while ((last >> bits) > 1) ++bits;
  const int64_t high = std::min(last, int64_t{2} << random.below(bits + 1));
  return random.between(1, high);
}

constexpr FaultKind kOfGroups[] = {FaultKind::kDelay,     FaultKind::kDrop, FaultKind::kDuplicate,
                                   FaultKind::kTruncate,  FaultKind::kFlip, FaultKind::kCut,
                                   FaultKind::kPartition, FaultKind::kKill, FaultKind::kStop};
constexpr FaultKind kOfLinks[] = {FaultKind::kDelay,     FaultKind::kDrop, FaultKind::kTruncate, FaultKind::kCut,
                                  FaultKind::kPartition, FaultKind::kKill, FaultKind::kStop,     FaultKind::kSlow};

Faults draw(SeededRandom& random, int64_t num_messages, nanoseconds timeout, std::span<const FaultKind> kinds) {
  Faults faults;
  faults.min_delay = microseconds(random.between(5, 200));
  faults.max_delay = faults.min_delay + microseconds(draw_ordinal(random, 20000));
  faults.patience = std::min<nanoseconds>(timeout / 4, std::chrono::seconds(4));
  if (random.one_in(8)) return faults;
  const int64_t longest = random.one_in(2) ? faults.patience.count() : 3 * timeout.count();
  const int64_t count = random.between(1, 3);
  for (int64_t i = 0; i < count; ++i) {
    faults.faults.push_back({.kind = kinds[static_cast<std::size_t>(random.below(std::ssize(kinds)))],
                             .message = draw_ordinal(random, num_messages),
                             .duration = nanoseconds(random.between(1, longest)),
                             .choice = random.next()});
  }
  return faults;
}

}  // namespace

const char* fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDelay: return "delay";
    case FaultKind::kDrop: return "drop";
    case FaultKind::kDuplicate: return "duplicate";
    case FaultKind::kTruncate: return "truncate";
    case FaultKind::kFlip: return "flip";
    case FaultKind::kCut: return "cut";
    case FaultKind::kPartition: return "partition";
    case FaultKind::kKill: return "kill";
    case FaultKind::kStop: return "stop";
    case FaultKind::kSlow: return "slow";
  }
  return "";
}

Faults draw_faults(SeededRandom& random, int64_t num_messages, nanoseconds timeout) {
  return draw(random, num_messages, timeout, kOfGroups);
}

Faults draw_link_faults(SeededRandom& random, int64_t num_messages, nanoseconds timeout) {
  return draw(random, num_messages, timeout, kOfLinks);
}

}  // namespace ferry
