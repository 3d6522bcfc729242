#include "runtime/server/cluster_service.h"

#include <grpcpp/grpcpp.h>

#include "ferry/v1/cluster.grpc.pb.h"
#include "ferry/v1/experts.grpc.pb.h"
#include "runtime/expert_record.h"
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

class ExpertsService final : public v1::Experts::Service {
 public:
  ExpertsService(const EngineClient& engine, const ApiKeys& keys) : engine_(engine), keys_(keys) {}

  grpc::Status GetPlacement(grpc::ServerContext* context, const v1::GetPlacementRequest*,
                            v1::GetPlacementResponse* response) override {
    return answer_with(*context, keys_, [&] {
      const std::shared_ptr<const ExpertPlacement> placement = engine_.experts().placement();
      response->set_epoch(placement->epoch());
      for (int64_t l = 0; l < placement->num_layers(); ++l) fill_layer(placement->layer(l), *response->add_layers());
    });
  }

  grpc::Status GetLoad(grpc::ServerContext* context, const v1::GetExpertLoadRequest*,
                       v1::GetExpertLoadResponse* response) override {
    return answer_with(*context, keys_, [&] {
      const ExpertLoads loads = engine_.experts().loads();
      response->set_num_steps(loads.num_steps);
      response->set_balancedness(engine_.load().balancedness);
      for (int64_t l = 0; l < loads.num_layers; ++l) {
        v1::GetExpertLoadResponse::Layer& layer = *response->add_layers();
        const auto first = static_cast<std::ptrdiff_t>(l * loads.num_experts);
        const auto last = first + static_cast<std::ptrdiff_t>(loads.num_experts);
        layer.mutable_rows()->Assign(loads.rows.begin() + first, loads.rows.begin() + last);
        layer.mutable_touched_steps()->Assign(loads.touched.begin() + first, loads.touched.begin() + last);
      }
    });
  }

 private:
  static void fill_layer(const ExpertMap& map, v1::GetPlacementResponse::Layer& layer) {
    for (std::size_t r = 0; r < map.ranks().size(); ++r) {
      v1::GetPlacementResponse::RankExperts& held = *layer.add_ranks();
      held.set_rank(map.ranks()[r].value);
      for (const PhysicalExpertId expert : map.experts_of(static_cast<int32_t>(r)))
        held.add_experts(map.logical_of(expert).value);
    }
  }

  const EngineClient& engine_;
  const ApiKeys& keys_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_cluster_service(const EngineClient& engine, const ApiKeys& keys) {
  return std::make_shared<ClusterService>(engine, keys);
}

std::shared_ptr<grpc::Service> make_experts_service(const EngineClient& engine, const ApiKeys& keys) {
  return std::make_shared<ExpertsService>(engine, keys);
}

}  // namespace ferry
