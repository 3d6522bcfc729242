#include "runtime/server/experts_service.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <set>

#include "ferry/v1/experts.grpc.pb.h"
#include "runtime/expert_record.h"
#include "runtime/server/answered_call.h"
#include "runtime/server/engine_client.h"
#include "runtime/worker_record.h"

namespace ferry {
namespace {

constexpr int64_t kIdBytesMax = 5;     // of an expert or a rank as protobuf writes it
constexpr int64_t kHeaderBytes = 16;   // of a message in another one, with what it has beside experts
constexpr int64_t kRequestBytes = 64;  // of a request beside its layers

/// Workers that have left, whose places nobody has taken; they hold nothing.
std::set<int32_t> ranks_gone(const WorkerReport& report) {
  std::set<int32_t> gone;
  for (const WorkerSight& worker : report.workers) {
    if (worker.state == WorkerState::kGone) gone.insert(worker.rank);
  }
  return gone;
}

void fill_layer(const ExpertMap& map, const std::set<int32_t>& gone, v1::GetPlacementResponse::Layer& layer) {
  for (std::size_t r = 0; r < map.ranks().size(); ++r) {
    if (gone.contains(map.ranks()[r].value)) continue;
    v1::GetPlacementResponse::RankExperts& held = *layer.add_ranks();
    held.set_rank(map.ranks()[r].value);
    for (const PhysicalExpertId expert : map.experts_of(static_cast<int32_t>(r)))
      held.add_experts(map.logical_of(expert).value);
  }
}

/// As long as the message, which is bounded.
GivenPlacement given_by(const v1::SetPlacementRequest& request) {
  GivenPlacement given;
  for (const v1::GetPlacementResponse::Layer& layer : request.layers()) {
    std::vector<GivenExperts>& ranks = given.emplace_back();
    for (const v1::GetPlacementResponse::RankExperts& held : layer.ranks())
      ranks.push_back({.rank = held.rank(), .experts = {held.experts().begin(), held.experts().end()}});
  }
  return given;
}

class ExpertsService final : public v1::Experts::Service {
 public:
  ExpertsService(EngineClient& engine, const ApiKeys& keys) : engine_(engine), keys_(keys) {}

  grpc::Status GetPlacement(grpc::ServerContext* context, const v1::GetPlacementRequest*,
                            v1::GetPlacementResponse* response) override {
    return answer_with(*context, keys_, [&] {
      const std::set<int32_t> gone = ranks_gone(engine_.workers());
      const ExpertRecord::Placed placed = engine_.experts().placed();
      const ExpertPlacement& placement = *placed.placement;
      response->set_epoch(placement.epoch());
      response->set_set_by_hand(placed.by == PlacedBy::kHand);
      for (int64_t l = 0; l < placement.num_layers(); ++l) fill_layer(placement.layer(l), gone, *response->add_layers());
    });
  }

  grpc::Status SetPlacement(grpc::ServerContext* context, const v1::SetPlacementRequest* request,
                            v1::SetPlacementResponse* response) override {
    const auto is_late = [&] { return std::chrono::system_clock::now() >= context->deadline(); };
    return answer_with(*context, keys_, [&] {
      try {
        const auto is_given_up = [&] { return context->IsCancelled() || is_late(); };
        response->set_epoch(engine_.set_placement(given_by(*request), request->epoch(), is_given_up));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kCancelled || !is_late()) throw;
        throw Error(ErrorCode::kDeadlineExceeded, "workers were not ready in time; the placement is as it was");
      }
    });
  }

  grpc::Status GetLoad(grpc::ServerContext* context, const v1::GetExpertLoadRequest*,
                       v1::GetExpertLoadResponse* response) override {
    return answer_with(*context, keys_, [&] {
      const ExpertLoads loads = engine_.experts().loads();
      response->set_num_steps(loads.num_steps);
      response->set_balancedness(engine_.load().balancedness);
      response->set_expert_fixed_cost_rows(engine_.workers().expert_cost.fixed);
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
  EngineClient& engine_;
  const ApiKeys& keys_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_experts_service(EngineClient& engine, const ApiKeys& keys) {
  return std::make_shared<ExpertsService>(engine, keys);
}

int64_t longest_placement(const ExpertPlacement& placement) {
  const int64_t rank_bytes = kHeaderBytes + placement.num_experts() * kIdBytesMax;
  return kRequestBytes + placement.num_layers() * (kHeaderBytes + kMaxWorkers * rank_bytes);
}

}  // namespace ferry
