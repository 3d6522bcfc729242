#include "runtime/server/front/coordinator_choice.h"

#include <algorithm>
#include <tuple>

namespace ferry {
namespace {

using Sights = std::span<const CoordinatorSight>;

bool is_eligible(Sights all, std::optional<std::size_t> index) {
  return index && *index < all.size() && all[*index].may_be_chosen;
}

/// Of those with `pieces` or more of the prompt; nothing if there is none.
std::optional<std::size_t> least_loaded(Sights all, std::size_t pieces) {
  std::optional<std::size_t> least;
  const auto load = [&](std::size_t index) { return std::tuple(all[index].num_open, all[index].num_chosen); };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].may_be_chosen || all[i].cached_pieces < pieces) continue;
    if (!least || load(i) < load(*least)) least = i;
  }
  return least;
}

bool is_overloaded(Sights all, std::size_t index) {
  int64_t num_open = 0, num_eligible = 0;
  for (const CoordinatorSight& each : all) {
    num_open += each.may_be_chosen ? each.num_open : 0;
    num_eligible += each.may_be_chosen ? 1 : 0;
  }
  const double mean = static_cast<double>(num_open) / static_cast<double>(num_eligible);
  return static_cast<double>(all[index].num_open) > kLoadFactor * mean + static_cast<double>(kLoadSlack);
}

/// Who has the longest beginning of the prompt; nothing if nobody has any of it.
std::optional<std::size_t> longest_match(Sights all, std::optional<std::size_t> user) {
  std::size_t longest = 0;
  for (const CoordinatorSight& each : all) longest = std::max(longest, each.may_be_chosen ? each.cached_pieces : 0);
  if (longest == 0) return std::nullopt;
  if (is_eligible(all, user) && all[*user].cached_pieces == longest) return user;
  return least_loaded(all, longest);
}

}  // namespace

std::optional<CoordinatorChoice> choose_coordinator(Sights all, const FormerPlaces& former) {
  const std::optional<std::size_t> least = least_loaded(all, 0);
  if (!least) return std::nullopt;
  const std::pair<std::optional<std::size_t>, ChoiceReason> favoured[] = {
      {former.session, ChoiceReason::kSession},
      {longest_match(all, former.user), ChoiceReason::kPrefix},
      {former.user, ChoiceReason::kUser},
  };
  bool was_favoured = false;
  for (const auto& [index, reason] : favoured) {
    if (!is_eligible(all, index)) continue;
    if (!is_overloaded(all, *index)) return CoordinatorChoice{*index, reason};
    was_favoured = true;
  }
  return CoordinatorChoice{*least, was_favoured ? ChoiceReason::kOverflow : ChoiceReason::kLoad};
}

}  // namespace ferry
