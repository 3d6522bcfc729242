#include "runtime/plan/shared_workers.h"

#include <algorithm>

namespace ferry {
namespace {

/// The queue in front of workers whose service takes `service_s` a request, `own_s` between two requests.
struct Queue {
  double others = 0;  // that wait when a request is taken
  double use = 0;
  double layer_s = 0;
};

Queue queue_of_hosts(int64_t coordinators, double own_s, double service_s) {
  double queued = 0, use = 0;  // with one coordinator less
  Queue queue;
  for (int64_t m = 1; m <= coordinators; ++m) {
    queue.others = std::max(0.0, queued - use);
    const double response = service_s * (1 + queue.others + use / 2);
    const auto coordinators_now = static_cast<double>(m);
    queue.layer_s = std::max(own_s + response, coordinators_now * service_s);  // the workers can do no more
    use = queue.layer_s > 0 ? std::min(1.0, coordinators_now * service_s / queue.layer_s) : 0;
    queued = queue.layer_s > 0 ? coordinators_now * (queue.layer_s - own_s) / queue.layer_s : 0;
  }
  queue.use = use;
  return queue;
}

Queue queue_of(const SharedWork& work, double service_s) {
  if (!work.is_together) return queue_of_hosts(work.coordinators, work.own_s, service_s);
  const double all_services = static_cast<double>(work.coordinators) * service_s;
  Queue queue{.layer_s = work.own_s + all_services};
  if (queue.layer_s <= 0) return queue;
  queue.use = all_services / queue.layer_s;
  queue.others = static_cast<double>(work.coordinators - 1) * queue.use;
  return queue;
}

SharedTurn turn_of(const SharedWork& work, double partner) {
  // With a partner in a share of the services, so many answers take so much of the workers' time each.
  const double service_s = (1 - partner) * work.service_s + partner * work.service_two_s;
  const double of_answer = service_s / (1 + partner);
  const double merged_share = 2 * partner / (1 + partner);
  const Queue queue = queue_of(work, of_answer);
  // A merged answer comes when all of its group are done, which counts already where everything is done in turn.
  const double own_service = (1 - merged_share) * work.service_s + merged_share * work.service_two_s;
  const double layer_s = queue.layer_s + (work.is_together ? 0 : own_service - of_answer);
  return {.layer_s = layer_s,
          .wait_s = layer_s - work.own_s - work.service_s,
          .merged_share = merged_share,
          .worker_use = queue.layer_s > 0 ? queue.use : 0};
}

}  // namespace

SharedTurn unmerged_turn(const SharedWork& work) { return turn_of(work, 0); }

SharedTurn estimate_turn(const SharedWork& work) {
  constexpr int kRounds = 50;
  double partner = 0;  // share of the services that have one
  for (int i = 0; i < kRounds; ++i) {
    const double of_answer = ((1 - partner) * work.service_s + partner * work.service_two_s) / (1 + partner);
    const double waiting = queue_of(work, of_answer).others;
    partner = (partner + std::min(1.0, work.same_layer * waiting)) / 2;  // half way, so that it settles
  }
  return turn_of(work, partner);
}

double same_layer_chance(int64_t num_layers) { return 1.0 / static_cast<double>(std::max<int64_t>(1, num_layers)); }

}  // namespace ferry
