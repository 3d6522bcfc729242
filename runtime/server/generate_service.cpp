#include "runtime/server/generate_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "ferry/v1/inference.grpc.pb.h"
#include "runtime/server/caller.h"
#include "runtime/server/generate_call.h"
#include "runtime/server/generate_request.h"

namespace ferry {
namespace {

constexpr std::size_t kTokenizerThreads = 2;    // prompts that are tokenized at once
constexpr std::size_t kMediaThreads = 2;        // prompts whose pictures are fetched and decoded at once
constexpr std::size_t kMaxWaitingPrompts = 64;  // for one of these, each
constexpr int64_t kCallsBesideTheQueue = 256;   // whose answers are still being read, or whose prompts are being made

ServerLimits bounded_by(const PromptBounds& bounds, ServerLimits limits) {
  limits.prompt_bytes = std::min(limits.prompt_bytes, bounds.max_bytes);
  return limits;
}

int64_t max_open_calls(const EngineLoad& load) {
  return load.max_running_requests + load.max_waiting_requests + kCallsBesideTheQueue;
}

void fill(v1::PrefixCache& to, const PrefixCacheLoad& load) {
  to.set_queries(load.num_queries);
  to.set_query_tokens(load.num_query_tokens);
  to.set_cached_tokens(load.num_cached_tokens);
  to.set_idle_blocks(load.num_idle_blocks);
  to.set_snapshots(load.num_snapshots);
  to.set_snapshot_bytes(load.snapshot_bytes);
  to.set_saved_snapshots(load.num_saved_snapshots);
  to.set_evicted_units(load.num_evicted_units);
  to.set_evicted_snapshots(load.num_evicted_snapshots);
  for (int miss = 0; miss < kNumCacheMisses; ++miss) {
    const int64_t num_requests = load.misses[static_cast<std::size_t>(miss)];
    if (num_requests > 0) (*to.mutable_misses())[cache_miss_name(static_cast<CacheMiss>(miss))] = num_requests;
  }
}

class GenerateService : public v1::Inference::CallbackService {
 public:
  GenerateService(EngineClient& engine, const ServerLimits& limits, const ApiKeys& keys, Preparations& preparations)
      : engine_(engine),
        keys_(keys),
        shared_{.engine = engine,
                .limits = bounded_by(engine.prompt_bounds(), limits),
                .preparations = preparations,
                .tokenizers = TaskPool(kTokenizerThreads, kMaxWaitingPrompts),
                .media_readers = TaskPool(kMediaThreads, kMaxWaitingPrompts),
                .open_calls = std::make_shared<OpenCalls>(max_open_calls(engine.load()), limits.grpc_memory_bytes)} {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override {
    const auto call = std::make_shared<GenerateCall>(shared_);
    Caller caller = identify_caller(*context, keys_);
    if (caller.status.ok()) {
      call->start(*context, *request, std::move(caller.owner));
    } else {
      call->refuse(caller.status);
    }
    return call.get();
  }

  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context, const v1::GetModelInfoRequest*,
                                         v1::GetModelInfoResponse* response) override {
    if (const Caller caller = identify_caller(*context, keys_); !caller.status.ok()) return answer(context, caller.status);
    const ModelInfo& info = engine_.model_info();
    response->set_name(info.name);
    response->set_architecture(info.architecture);
    response->set_dtype(dtype_name(info.dtype));
    response->set_vocab_size(info.vocab_size);
    response->set_context_length(info.context_length);
    response->set_num_layers(info.num_layers);
    response->set_hidden_dim(info.hidden_dim);
    response->set_num_experts(info.num_experts);
    response->set_experts_per_token(info.experts_per_token);
    response->set_num_expert_workers(info.num_expert_workers);
    response->set_transport(info.transport);
    response->mutable_stop_token_ids()->Add(info.generation.stop_token_ids.begin(), info.generation.stop_token_ids.end());
    auto& defaults = *response->mutable_sampling_defaults();
    defaults.set_do_sample(info.generation.do_sample);
    response->set_takes_media(info.takes_media);
    if (info.generation.temperature) defaults.set_temperature(*info.generation.temperature);
    if (info.generation.top_p) defaults.set_top_p(*info.generation.top_p);
    if (info.generation.top_k) defaults.set_top_k(*info.generation.top_k);
    return answer(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context, const v1::GetLoadRequest*,
                                    v1::GetLoadResponse* response) override {
    if (const Caller caller = identify_caller(*context, keys_); !caller.status.ok()) return answer(context, caller.status);
    const EngineLoad load = engine_.load();
    response->set_running_requests(load.running_requests);
    response->set_waiting_requests(load.waiting_requests);
    response->set_max_running_requests(load.max_running_requests);
    response->set_max_waiting_requests(load.max_waiting_requests);
    response->set_kv_blocks_total(load.kv_blocks_total);
    response->set_kv_blocks_used(load.kv_blocks_used);
    response->set_preempted_requests(load.preempted_requests);
    response->set_preemptions(load.preemptions);
    response->set_steps(load.steps);
    response->set_prompt_tokens(load.prompt_tokens);
    response->set_generated_tokens(load.generated_tokens);
    response->set_balancedness(load.balancedness);
    for (std::size_t i = 0; i < load.drafts.tried.size() && load.drafts.tried[i] > 0; ++i) {
      response->add_drafts_tried(load.drafts.tried[i]);
      response->add_drafts_right(load.drafts.right[i]);
    }
    response->set_step_seconds(load.draft_time.steps);
    response->set_drafting_seconds(load.draft_time.drafting);
    response->set_wasted_seconds(load.draft_time.wasted);
    fill(*response->mutable_prefix_cache(), load.prefix_cache);
    return answer(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override {
    const Caller caller = identify_caller(*context, keys_);
    if (!caller.status.ok()) return answer(context, caller.status);
    if (request->request_id().empty()) {
      return answer(context, {grpc::StatusCode::INVALID_ARGUMENT, "request_id is empty, it must name a request"});
    }
    // In this order: a request is submitted before it leaves the preparations. And both: one may run while another that was
    // given the same id is prepared, to be refused.
    const bool was_prepared = shared_.preparations.abort(caller.owner, request->request_id());
    const bool was_open = engine_.abort(caller.owner, request->request_id());
    response->set_found(was_prepared || was_open);
    return answer(context, grpc::Status::OK);
  }

 private:
  static grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  EngineClient& engine_;
  const ApiKeys& keys_;
  GenerateContext shared_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_generate_service(EngineClient& engine, const ServerLimits& limits, const ApiKeys& keys,
                                                     Preparations& preparations) {
  return std::make_shared<GenerateService>(engine, limits, keys, preparations);
}

int64_t longest_request(const EngineClient& engine, const ServerLimits& limits) {
  if (engine.model_info().takes_media) return limits.grpc_message_bytes;
  const PromptBounds bounds = engine.prompt_bounds();
  return longest_message(bounded_by(bounds, limits), bounds, engine.model_info().vocab_size);
}

}  // namespace ferry
