#include "runtime/elastic/door.h"

#include <algorithm>

#include "moe/placement/placement_types.h"
#include "runtime/base/error.h"
#include "runtime/version.h"

namespace ferry {

std::vector<Term> introduction_terms(const std::string& fingerprint) {
  return {{program_identity()}, {"a checkpoint of fingerprint " + fingerprint}};
}

Rank DoorSeats::take() {
  const auto most = static_cast<std::size_t>(kMaxWorkers) + 1;
  auto seat = static_cast<std::size_t>(std::ranges::find(taken_, false) - taken_.begin());
  if (seat >= most)
    throw Error(ErrorCode::kFailedPrecondition, "there are " + std::to_string(kMaxWorkers) + " workers, which is the most");
  if (seat == taken_.size()) taken_.push_back(false);
  taken_[seat] = true;
  return Rank{static_cast<int32_t>(seat)};
}

}  // namespace ferry
