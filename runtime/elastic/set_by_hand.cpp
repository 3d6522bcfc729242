#include <utility>

#include "moe/given_placement.h"
#include "runtime/base/error.h"
#include "runtime/elastic/membership.h"

// How a placement comes about that somebody has set by hand, and how workers come back from one that does not.

namespace ferry {

void Membership::set_placement(std::vector<LayerPlacement> layers, uint32_t epoch, std::shared_ptr<PlacementOrder> order) {
  if (hub_.fails_together()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "experts stay where they are over mpi and gloo; allowed: ranks over sockets (--transport auto)");
  }
  const ExpertPlacement& current = dispatcher_.placement();
  if (epoch != 0 && epoch != current.epoch()) {
    throw Error(ErrorCode::kAborted, "the placement was made from that of epoch " + std::to_string(epoch) +
                                         ", and steps run by that of epoch " + std::to_string(current.epoch()));
  }
  look_for_losses();
  if (order_) throw Error(ErrorCode::kAborted, "another placement that was set by hand is on its way");
  const bool moves_for_members = relocation_ && aim_ == Aim::kMembers;
  if (moves_for_members || (!is_stuck_ && has_hands() && wants_change()))
    throw Error(ErrorCode::kAborted, "experts move for workers that come or go");
  std::vector<PlacedSeat> seats;
  std::vector<Rank> ranks;
  for (std::size_t w = 0; w < members_.size(); ++w) {
    const Member& member = members_[w];
    const bool gets_rows = is_alive(member) && member.is_seated && !member.wants_to_leave;
    const bool was_there = w < was_seated_.size() && was_seated_[w];
    seats.push_back(
        {.gets_rows = gets_rows, .has_left = epoch != 0 && was_there && !gets_rows, .most_experts = member.most_experts});
    ranks.push_back(member.rank);
  }
  require_seats(layers, seats);
  begin(ExpertPlacement(next_epoch_, ranks, current.num_experts(), layers), Aim::kByHand);
  order_ = std::move(order);
}

void Membership::give_up(const PlacementOrder& order) {
  if (order_.get() == &order) drop_relocation(Error(ErrorCode::kCancelled, "its caller has given it up"));
}

/// Tells workers to hold what they hold.
void Membership::go_back() {
  const ExpertPlacement& current = dispatcher_.placement();
  std::vector<Rank> ranks;
  for (const Member& member : members_) ranks.push_back(member.rank);
  std::vector<LayerPlacement> layers;
  for (int64_t layer = 0; layer < current.num_layers(); ++layer) {
    layers.push_back(current.experts(layer));
    layers.back().resize(ranks.size());
  }
  begin(ExpertPlacement(next_epoch_, ranks, current.num_experts(), layers), Aim::kGoBack);
}

}  // namespace ferry
