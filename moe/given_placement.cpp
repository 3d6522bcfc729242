#include "moe/given_placement.h"

#include <array>
#include <string>

#include "moe/expert_placement.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

std::string layer_name(std::size_t layer) { return "layer " + std::to_string(layer); }

[[noreturn]] void refuse_given(std::size_t layer, const std::string& what, int64_t got, const std::string& allowed) {
  throw_invalid(layer_name(layer) + ": " + what + " " + std::to_string(got) + "; allowed: " + allowed);
}

/// Lists as long as what they hold: whether experts are there and on different ranks is for who makes a map of them.
LayerPlacement lay_out_layer(std::size_t layer, const std::vector<GivenExperts>& given, int64_t num_experts) {
  LayerPlacement seats;
  std::array<bool, static_cast<std::size_t>(kMaxWorkers)> is_named{};
  for (const GivenExperts& holder : given) {
    if (holder.rank < 1 || holder.rank > kMaxWorkers)
      refuse_given(layer, "rank", holder.rank, "1 to " + std::to_string(kMaxWorkers) + ", which are workers");
    const auto seat = static_cast<std::size_t>(holder.rank) - 1;
    if (is_named[seat]) refuse_given(layer, "twice rank", holder.rank, "once");
    is_named[seat] = true;
    if (std::ssize(holder.experts) > num_experts) {
      refuse_given(layer, "on rank " + std::to_string(holder.rank) + " a number of experts of", std::ssize(holder.experts),
                   "at most the model's " + std::to_string(num_experts));
    }
    if (seats.size() <= seat) seats.resize(seat + 1);
    for (const int32_t expert : holder.experts) seats[seat].push_back({expert});
  }
  return seats;
}

std::string list_seats(std::span<const PlacedSeat> seats) {
  std::string list;
  for (std::size_t w = 0; w < seats.size(); ++w) {
    if (seats[w].gets_rows) list += (list.empty() ? "" : ", ") + std::to_string(w + 1);
  }
  return list.empty() ? "none, since no worker is there" : list;
}

}  // namespace

std::vector<LayerPlacement> lay_out_given(const GivenPlacement& given, int64_t num_layers, int64_t num_experts) {
  if (std::ssize(given) != num_layers) {
    throw_invalid("a placement of " + std::to_string(given.size()) + " layers; allowed: the model's " +
                  std::to_string(num_layers) + " with experts");
  }
  std::vector<LayerPlacement> layers;
  std::size_t num_seats = 1;
  for (std::size_t layer = 0; layer < given.size(); ++layer) {
    if (std::ssize(given[layer]) > kMaxWorkers)
      refuse_given(layer, "a number of ranks of", std::ssize(given[layer]), "at most " + std::to_string(kMaxWorkers));
    layers.push_back(lay_out_layer(layer, given[layer], num_experts));
    num_seats = std::max(num_seats, layers.back().size());
  }
  std::vector<Rank> ranks;
  for (std::size_t w = 0; w < num_seats; ++w) ranks.push_back({static_cast<int32_t>(w) + 1});
  for (LayerPlacement& layer : layers) layer.resize(num_seats);
  const ExpertPlacement checked(1, ranks, num_experts, layers);  // the rest of what can be wrong
  return layers;
}

void require_seats(std::vector<LayerPlacement>& layers, std::span<const PlacedSeat> seats) {
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (std::size_t w = 0; w < layers[layer].size(); ++w) {
      const int64_t num_experts = std::ssize(layers[layer][w]);
      if (num_experts == 0) continue;
      if (w < seats.size() && seats[w].has_left) {
        throw Error(ErrorCode::kAborted, layer_name(layer) + ": experts on rank " + std::to_string(w + 1) +
                                             ", which has left since; there are " + list_seats(seats));
      }
      if (w >= seats.size() || !seats[w].gets_rows)
        refuse_given(layer, "experts on rank", static_cast<int64_t>(w) + 1,
                     "ranks that get rows and stay: " + list_seats(seats));
      if (num_experts > seats[w].most_experts.value_or(num_experts)) {
        refuse_given(layer, "on rank " + std::to_string(w + 1) + " a number of experts of", num_experts,
                     "at most " + std::to_string(*seats[w].most_experts) + ", for which it has memory");
      }
    }
    layers[layer].resize(seats.size());
  }
}

}  // namespace ferry
