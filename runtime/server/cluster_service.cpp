#include "runtime/server/cluster_service.h"

#include <grpcpp/grpcpp.h>

#include "ferry/v1/cluster.grpc.pb.h"
#include "runtime/server/answered_call.h"
#include "runtime/server/engine_client.h"
#include "runtime/worker_record.h"

namespace ferry {
namespace {

v1::Worker::State worker_state_of(WorkerState state) {
  switch (state) {
    case WorkerState::kVacant: return v1::Worker::STATE_VACANT;
    case WorkerState::kHealthy: return v1::Worker::STATE_HEALTHY;
    case WorkerState::kSuspect: return v1::Worker::STATE_SUSPECT;
    case WorkerState::kMasked: return v1::Worker::STATE_MASKED;
    case WorkerState::kJoining: return v1::Worker::STATE_JOINING;
    case WorkerState::kLeaving: return v1::Worker::STATE_LEAVING;
    case WorkerState::kGone: return v1::Worker::STATE_GONE;
  }
  return v1::Worker::STATE_UNSPECIFIED;
}

void fill_worker(const WorkerSight& sight, v1::Worker& worker) {
  worker.set_rank(sight.rank);
  worker.set_state(worker_state_of(sight.state));
  worker.set_reason(sight.reason);
  worker.set_changed_us(static_cast<int64_t>(sight.changed_s * 1e6));
  worker.set_rows(sight.rows);
  worker.set_speed(sight.speed);
  worker.set_host(sight.home.host);
  worker.set_address(sight.home.address);
  worker.set_lost(sight.is_lost);
}

class ClusterService final : public v1::Cluster::Service {
 public:
  ClusterService(const EngineClient& engine, const ApiKeys& keys) : engine_(engine), keys_(keys) {}

  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest*,
                          v1::GetClusterResponse* response) override {
    return answer_with(*context, keys_, [&] {
      const WorkerReport report = engine_.workers();
      response->set_state(report.missing().empty() ? v1::GetClusterResponse::STATE_HEALTHY
                                                   : v1::GetClusterResponse::STATE_DEGRADED);
      for (const WorkerSight& sight : report.workers) fill_worker(sight, *response->add_workers());
      response->set_rows_covered_by_workers(report.covered.by_workers);
      response->set_rows_covered_by_coordinator(report.covered.by_coordinator);
      response->set_kept_expert_bytes(report.kept_bytes);
      for (int state = 1; state < kNumWorkerStates; ++state)
        (*response->mutable_changes())[worker_state_name(static_cast<WorkerState>(state))] =
            report.changes[static_cast<std::size_t>(state)];
    });
  }

 private:
  const EngineClient& engine_;
  const ApiKeys& keys_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_cluster_service(const EngineClient& engine, const ApiKeys& keys) {
  return std::make_shared<ClusterService>(engine, keys);
}

}  // namespace ferry
