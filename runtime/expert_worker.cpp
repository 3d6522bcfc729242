#include "runtime/expert_worker.h"

#include <optional>

#include "moe/assignment.h"
#include "runtime/base/error.h"
#include "runtime/expert_server.h"

namespace ferry {
namespace {

constexpr Rank kSource{0};

/// What the coordinator wants this rank to hold. Throws Error{kUnavailable} if that one failed.
Assignment read_assignment(std::span<const std::byte> message, const ExpertShelf& shelf) {
  try {
    Assignment assignment = decode_assignment(message, shelf.num_layers(), shelf.config().moe.num_experts);
    if (assignment.experts.empty()) throw Error(ErrorCode::kUnavailable, "the coordinator failed");
    return assignment;
  } catch (const Error& error) {
    throw Error(error.code(), "rank " + std::to_string(kSource.value) + ": " + error.what());
  }
}

}  // namespace

int run_expert_worker(const EngineOptions& options, Cluster& cluster) {
  const std::vector<std::byte> message = receive_assignment(cluster);
  std::optional<ExpertShelf> shelf;
  std::optional<ExpertHolder> holder;
  const auto prepare = [&] {
    shelf.emplace(options, cluster.place());
    holder.emplace(*shelf);
    holder->hold(read_assignment(message, *shelf));
    return shelf->terms();
  };
  cluster.agree(prepare, kLoadTimeout);
  ExpertServer server(*shelf, *cluster.hub(),
                      {.peer_timeout = to_milliseconds(options.peer_timeout_s),
                       .clock_skew = options.clock_skew,
                       .wants_to_leave = {},
                       .faults = options.faults});
  server.begin(cluster.rank(), cluster.link(kSource), *holder);
  const std::optional<ExpertServer::Ended> ended = server.serve(Deadline::max());
  if (ended->error) throw Error(*ended->error);
  if (ended->are_ranks_lost) cluster.abandon();
  return 0;
}

}  // namespace ferry
