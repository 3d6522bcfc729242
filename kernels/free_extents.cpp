#include "kernels/free_extents.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {

FreeExtents::FreeExtents(std::size_t num_bytes) : num_bytes_(num_bytes) {
  if (num_bytes > 0) holes_.emplace(0, num_bytes);
}

std::optional<FreeExtents::Taken> FreeExtents::take(std::size_t size) {
  FERRY_CHECK_GE(size, 1U);
  if (num_bytes_ - used_bytes_ < size) return std::nullopt;
  const auto found = std::ranges::find_if(holes_, [&](const auto& hole) { return hole.second - hole.first >= size; });
  if (found == holes_.end()) return std::nullopt;
  const auto [begin, end] = *found;
  std::map<std::size_t, std::size_t> one{{begin, begin + size}};
  Taken taken;
  taken.hole_ = one.extract(one.begin());
  auto rest = holes_.extract(found);
  if (begin + size < end) {
    rest.key() = begin + size;
    holes_.insert(std::move(rest));
  }
  used_bytes_ += size;
  return taken;
}

Extent FreeExtents::give_back(Taken taken) noexcept {
  used_bytes_ -= taken.extent().size();
  auto hole = holes_.insert(std::move(taken.hole_)).position;
  if (const auto next = std::next(hole); next != holes_.end() && next->first == hole->second) {
    hole->second = next->second;
    holes_.erase(next);
  }
  if (hole != holes_.begin() && std::prev(hole)->second == hole->first) {
    const auto before = std::prev(hole);
    before->second = hole->second;
    holes_.erase(hole);
    hole = before;
  }
  return {hole->first, hole->second};
}

}  // namespace ferry
