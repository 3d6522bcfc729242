#include "runtime/expert_worker.h"

#include <optional>

#include "moe/assignment.h"
#include "runtime/base/error.h"
#include "runtime/expert_server.h"

namespace ferry {
namespace {

constexpr Rank kSource{0};

/// What the coordinator wants this rank to hold. Throws Error{kUnavailable} if that one failed.
Assignment read_assignment(std::span<const std::byte> message, const ExpertHolder& holder) {
  try {
    Assignment assignment = decode_assignment(message, holder.num_layers(), holder.config().moe.num_experts);
    if (assignment.experts.empty()) throw Error(ErrorCode::kUnavailable, "the coordinator failed");
    return assignment;
  } catch (const Error& error) {
    throw Error(error.code(), "rank " + std::to_string(kSource.value) + ": " + error.what());
  }
}

}  // namespace

int run_expert_worker(const EngineOptions& options, Cluster& cluster) {
  const std::vector<std::byte> message = receive_assignment(cluster);
  std::optional<ExpertHolder> holder;
  const auto prepare = [&] {
    holder.emplace(options, cluster.place());
    holder->hold(read_assignment(message, *holder));
    return holder->terms();
  };
  cluster.agree(prepare, kLoadTimeout);
  ExpertServer server(*holder, *cluster.hub(), cluster.link(kSource),
                      {.rank = cluster.rank(),
                       .peer_timeout = to_milliseconds(options.peer_timeout_s),
                       .clock_skew = options.clock_skew,
                       .wants_to_leave = {}});
  if (server.run().are_ranks_lost) cluster.abandon();
  return 0;
}

}  // namespace ferry
