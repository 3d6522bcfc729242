#include "runtime/server/generate_service.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "ferry/v1/inference.grpc.pb.h"
#include "runtime/server/caller.h"
#include "runtime/server/generate_call.h"
#include "runtime/server/generate_request.h"
#include "runtime/server/generate_response.h"
#include "runtime/server/message_media.h"

namespace ferry {
namespace {

/// A message of Generate.
class GenerateMessage final : public CallMessage {
 public:
  explicit GenerateMessage(const v1::GenerateRequest& message) : message_(message) {}

  int64_t num_bytes() const override { return static_cast<int64_t>(message_.SpaceUsedLong()); }
  const std::string& request_id() const override { return message_.request_id(); }
  void check(const ServerLimits& limits) override { check_bounds(message_, limits); }
  PromptStep step(const ServerLimits& limits) const override {
    return has_media(message_) ? step_of_media(urls_of_media(message_), limits) : PromptStep{};
  }
  AnswerForm answer_form() const override { return AnswerForm::kStream; }

  std::vector<Request> make_requests(EngineClient& engine, const PromptTask& task) override {
    std::vector<Request> requests(1);
    MediaPrompt prompt = prompt_of(engine, message_, task);
    requests.front().prompt = std::move(prompt.ids);
    requests.front().media = std::move(prompt.media);
    requests.front().sampling = sampling_of(message_.sampling());
    requests.front().cache_salt = message_.cache_salt();
    requests.front().priority = message_.priority();
    return requests;
  }

 private:
  const v1::GenerateRequest& message_;
};

/// Its answer.
class GenerateAnswer final : public CallAnswer<v1::GenerateResponse> {
 public:
  void add(std::size_t /*choice*/, const GenerateEvent& event) override {
    if (waiting_) {
      append(*waiting_, to_response(event));
    } else {
      waiting_ = to_response(event);
    }
  }
  std::optional<v1::GenerateResponse> next() override { return std::exchange(waiting_, std::nullopt); }

 private:
  std::optional<v1::GenerateResponse> waiting_;
};

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
  to.set_file_capacity_bytes(load.file_capacity_bytes);
  to.set_file_bytes(load.file_bytes);
  to.set_file_hits(load.num_file_hits);
  to.set_file_hit_tokens(load.num_file_tokens);
  to.set_file_read_bytes(load.file_read_bytes);
  to.set_file_written_bytes(load.file_written_bytes);
  for (int why = 0; why < kNumFileDrops; ++why) {
    const int64_t num_records = load.file_drops[static_cast<std::size_t>(why)];
    if (num_records > 0) (*to.mutable_file_drops())[file_drop_name(static_cast<FileDrop>(why))] = num_records;
  }
}

class GenerateService : public v1::Inference::CallbackService {
 public:
  GenerateService(GenerateContext& shared, const ApiKeys& keys) : engine_(shared.engine), keys_(keys), shared_(shared) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override {
    const auto call = std::make_shared<StreamedCall<v1::GenerateResponse>>(shared_, std::make_unique<GenerateAnswer>(),
                                                                           "/ferry.v1.Inference/Generate");
    Caller caller = identify_caller(*context, keys_);
    if (caller.status.ok()) {
      call->start(*context, std::make_unique<GenerateMessage>(*request), std::move(caller));
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
    response->set_found(shared_.abort(caller.owner, request->request_id()));
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
  GenerateContext& shared_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_generate_service(GenerateContext& shared, const ApiKeys& keys) {
  return std::make_shared<GenerateService>(shared, keys);
}

}  // namespace ferry
