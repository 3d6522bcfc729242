#include "runtime/expert_worker.h"

#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "moe/assignment.h"
#include "runtime/base/error.h"
#include "runtime/expert_server.h"

namespace ferry {
namespace {

/// What a coordinator wants this rank to hold. Throws Error{kUnavailable} if that one failed.
Assignment read_assignment(std::span<const std::byte> message, const ExpertShelf& shelf, Rank coordinator) {
  try {
    Assignment assignment = decode_assignment(message, shelf.num_layers(), shelf.config().moe.num_experts);
    if (assignment.experts.empty()) throw Error(ErrorCode::kUnavailable, "the coordinator failed");
    return assignment;
  } catch (const Error& error) {
    throw Error(error.code(), "rank " + std::to_string(coordinator.value) + ": " + error.what());
  }
}

/// What this rank holds of the model, once, and for each coordinator.
class StartingWorker {
 public:
  StartingWorker(const EngineOptions& options, Cluster& cluster) : options_(options), cluster_(cluster) {
    for (int32_t c = 0; c < cluster.num_coordinators(); ++c) messages_.push_back(receive_assignment(cluster, {c}));
    cluster.agree([this] { return prepare(); }, kLoadTimeout);
    server_.emplace(*shelf_, *cluster.hub(),
                    ExpertServer::Options{.peer_timeout = to_milliseconds(options.peer_timeout_s),
                                          .clock_skew = options.clock_skew,
                                          .wants_to_leave = {},
                                          .faults = options.faults,
                                          .wait_to_merge = options.sharing.wait_to_merge});
    for (int32_t c = 0; c < cluster.num_coordinators(); ++c)
      server_->begin(cluster.rank(), cluster.link({c}), holders_[static_cast<std::size_t>(c)]);
  }

  /// Until the last coordinator has gone. Throws the Error of the first that went without a goodbye.
  void serve() {
    std::optional<Error> failure;
    while (server_->has_conversations()) {
      const std::optional<ExpertServer::Ended> ended = server_->serve(Deadline::max());
      if (ended->are_ranks_lost) cluster_.abandon();
      if (!ended->error) continue;
      if (!failure) failure = ended->error;
      if (server_->has_conversations())
        std::fprintf(stderr, "ferry: rank %d works for the other coordinators: %s\n", cluster_.launched_rank().value,
                     one_line(ended->error->what()).c_str());
    }
    if (failure) throw Error(*failure);
  }

 private:
  Cluster::Terms prepare() {
    shelf_.emplace(options_, cluster_.place());
    std::vector<Assignment> assignments;  // all of them before any is loaded: where a coordinator failed, nothing has to be
    for (std::size_t c = 0; c < messages_.size(); ++c)
      assignments.push_back(read_assignment(messages_[c], *shelf_, Rank{static_cast<int32_t>(c)}));
    messages_.clear();
    for (const Assignment& assignment : assignments) holders_.emplace_back(*shelf_).hold(assignment);
    return shelf_->terms();
  }

  const EngineOptions& options_;
  Cluster& cluster_;
  std::vector<std::vector<std::byte>> messages_;  // by coordinator, as below
  std::optional<ExpertShelf> shelf_;
  std::deque<ExpertHolder> holders_;
  std::optional<ExpertServer> server_;
};

}  // namespace

int run_expert_worker(const EngineOptions& options, Cluster& cluster) {
  StartingWorker(options, cluster).serve();
  return 0;
}

}  // namespace ferry
