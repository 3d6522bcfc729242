#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/server/caller.h"
#include "runtime/server/generate_call.h"
#include "runtime/server/profile_control.h"
#include "runtime/server/profile_request.h"
#include "runtime/server/status.h"
#include "runtime/server/vllm/abort_requests.h"
#include "runtime/server/vllm/archive_stream.h"
#include "runtime/server/vllm/engine_answer.h"
#include "runtime/server/vllm/engine_facts.h"
#include "runtime/server/vllm/engine_request.h"
#include "runtime/server/vllm/services.h"
#include "vllm/engine.grpc.pb.h"

namespace ferry::vllm {
namespace {

namespace wire = ::vllm::grpc::engine;
namespace common = ::smg::grpc::common;

constexpr std::size_t kSlowThreads = 2;  // for the tokenizer's archive and captures
constexpr std::size_t kMaxWaitingSlow = 16;

class EngineMessage final : public CallMessage {
 public:
  explicit EngineMessage(const wire::GenerateRequest& message) : message_(message) {}

  int64_t num_bytes() const override { return static_cast<int64_t>(message_.SpaceUsedLong()); }
  const std::string& request_id() const override { return message_.request_id(); }
  void check(const ServerLimits& limits) override { fields_ = read_engine_request(message_, limits); }
  PromptStep step(const ServerLimits& limits) const override { return step_of(fields_, limits); }
  bool has_grammar() const override { return fields_.constraint.has_value(); }
  const GrammarSpec* read_grammar() override { return vllm::read_grammar(fields_); }
  AnswerForm answer_form() const override { return message_.stream() ? AnswerForm::kStream : AnswerForm::kWhole; }
  std::vector<Request> make_requests(EngineClient& engine, const PromptTask& task) override {
    return vllm::make_requests(fields_, engine, task, answer_form());
  }

 private:
  const wire::GenerateRequest& message_;
  GenerateFields fields_;
};

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

grpc::Status unserved(const char* what) { return {grpc::StatusCode::UNIMPLEMENTED, what}; }

/// A stream that ends at once; it owns itself until gRPC is done with it.
class RefusedStream final : public grpc::ServerWriteReactor<common::KvEventBatch> {
 public:
  static RefusedStream* begin(const grpc::Status& status) {
    auto stream = std::make_unique<RefusedStream>();
    RefusedStream& begun = *stream;
    begun.self_ = std::move(stream);
    begun.Finish(status);
    return &begun;
  }
  void OnDone() override { const auto last_use = std::move(self_); }

 private:
  std::unique_ptr<RefusedStream> self_;
};

StartProfile read_start_profile(const common::StartProfileRequest& request) {
  if (!request.activities().empty()) throw_invalid("activities is given; allowed: none, all there is is recorded");
  if (request.with_stack()) throw_invalid("with_stack is true; allowed: false, there are no stacks");
  if (request.profile_by_stage()) throw_invalid("profile_by_stage is true; allowed: false, steps have prompts and tokens");
  StartProfile start{.plan = {.delay_steps = request.start_step(), .num_steps = request.num_steps()},
                     .output_dir = request.output_dir()};
  check_plan(start.plan);
  return start;
}

class EngineService final : public wire::VllmEngine::CallbackService {
 public:
  explicit EngineService(const ServiceContext& context)
      : context_(context),
        model_(model_facts(context.calls.engine, context.settings)),
        server_(server_facts(context.calls.engine, context.calls.limits)),
        archives_(context.settings.model_path),
        slow_(kSlowThreads, kMaxWaitingSlow) {}

  grpc::ServerWriteReactor<wire::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                             const wire::GenerateRequest* request) override {
    last_receive_ = seconds_since_1970();
    auto answer = std::make_unique<EngineAnswer>(request->stream());
    const auto call = std::make_shared<StreamedCall<wire::GenerateResponse>>(context_.calls, std::move(answer),
                                                                             "/vllm.grpc.engine.VllmEngine/Generate");
    Caller caller = identify_caller(*context, context_.keys);
    if (caller.status.ok()) {
      call->start(*context, std::make_unique<EngineMessage>(*request), std::move(caller));
    } else {
      call->refuse(caller.status);
    }
    return call.get();
  }

  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const wire::AbortRequest* request,
                                  wire::AbortResponse*) override {
    return abort_requests(*context, context_, request->request_ids());
  }

  /// Anybody may ask.
  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context, const wire::HealthCheckRequest*,
                                        wire::HealthCheckResponse* response) override {
    response->set_healthy(context_.is_serving);
    response->set_message(context_.is_serving ? "serving" : "the engine is late, drains or has failed");
    return answer(*context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context, const wire::GetModelInfoRequest*,
                                         wire::GetModelInfoResponse* response) override {
    return tell(*context, [&] { *response = model_; });
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const wire::GetServerInfoRequest*,
                                          wire::GetServerInfoResponse* response) override {
    return tell(*context, [&] {
      *response = server_;
      const EngineLoad load = context_.calls.engine.load();
      response->set_active_requests(static_cast<uint32_t>(load.running_requests + load.waiting_requests));
      response->set_last_receive_timestamp(last_receive_);
      response->set_uptime_seconds(std::chrono::duration<double>(TokenRate::SteadyClock::now() - start_).count());
    });
  }

  grpc::ServerUnaryReactor* GetLoads(grpc::CallbackServerContext* context, const wire::GetLoadsRequest* request,
                                     wire::GetLoadsResponse* response) override {
    return tell(*context, [&] {
      if (request->dp_rank() != 0) throw_invalid("dp_rank is " + std::to_string(request->dp_rank()) + "; allowed: 0");
      const EngineLoad load = context_.calls.engine.load();
      *response = load_facts(load, rate_.take(load.generated_tokens, TokenRate::SteadyClock::now()));
    });
  }

  grpc::ServerWriteReactor<common::GetTokenizerChunk>* GetTokenizer(grpc::CallbackServerContext* context,
                                                                    const common::GetTokenizerRequest*) override {
    const auto stream = std::make_shared<ArchiveStream>(context_.calls.open_calls);
    const Caller caller = identify_caller(*context, context_.keys);
    if (caller.status.ok()) {
      stream->start(*context, archives_, slow_);
    } else {
      stream->refuse(caller.status);
    }
    return stream.get();
  }

  grpc::ServerUnaryReactor* StartProfile(grpc::CallbackServerContext* context, const common::StartProfileRequest* request,
                                         common::ProfileResponse* response) override {
    return profile(*context, [request, response](ProfileControl& control) {
      const ferry::StartProfile start = read_start_profile(*request);
      response->set_message(control.start(start.plan, start.output_dir).string());
      response->set_success(true);
    });
  }

  /// Returns when the files are written.
  grpc::ServerUnaryReactor* StopProfile(grpc::CallbackServerContext* context, const common::StopProfileRequest*,
                                        common::ProfileResponse* response) override {
    return profile(*context, [response](ProfileControl& control) {
      response->set_message(control.stop(/*wait=*/true).string());
      response->set_success(true);
    });
  }

  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context, const wire::EmbedRequest*,
                                  wire::EmbedResponse*) override {
    return answer(*context, unserved("Embed is not served: the model makes tokens, not embeddings"));
  }

  grpc::ServerUnaryReactor* FlushCache(grpc::CallbackServerContext* context, const common::FlushCacheRequest*,
                                       common::FlushCacheResponse*) override {
    return answer(*context, unserved("FlushCache is not served: the prefix cache is exact and makes room by itself"));
  }

  grpc::ServerWriteReactor<common::KvEventBatch>* SubscribeKvEvents(grpc::CallbackServerContext*,
                                                                    const common::SubscribeKvEventsRequest*) override {
    return RefusedStream::begin(unserved("SubscribeKvEvents is not served: there are no events of the prefix cache"));
  }

 private:
  /// Answers with what `fill` fills in, or throws.
  template <class Fill>
  grpc::ServerUnaryReactor* tell(grpc::CallbackServerContext& context, Fill&& fill) {
    const Caller caller = identify_caller(context, context_.keys);
    if (!caller.status.ok()) return answer(context, caller.status);
    try {
      fill();
    } catch (const Error& error) {
      return answer(context, to_status(error));
    }
    return answer(context, grpc::Status::OK);
  }

  /// Has a pool do what may wait for the engine and for files.
  grpc::ServerUnaryReactor* profile(grpc::CallbackServerContext& context, std::function<void(ProfileControl&)> work) {
    const Caller caller = identify_caller(context, context_.keys);
    if (!caller.status.ok()) return answer(context, caller.status);
    if (context_.profile == nullptr) return answer(context, unserved("captures are not served here"));
    grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
    const auto run = [reactor, work = std::move(work), control = context_.profile] {
      grpc::Status status;
      try {
        work(*control);
      } catch (const Error& error) {
        status = to_status(error);
      } catch (const std::exception& error) {
        status = {grpc::StatusCode::INTERNAL, one_line(error.what())};
      }
      reactor->Finish(status);
    };
    if (!slow_.try_run(run)) reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls wait; try later"});
    return reactor;
  }

  const ServiceContext context_;
  const wire::GetModelInfoResponse model_;
  const wire::GetServerInfoResponse server_;
  const TokenRate::SteadyClock::time_point start_ = TokenRate::SteadyClock::now();
  std::atomic<double> last_receive_{0};  // seconds since 1970
  TokenRate rate_;
  TokenizerArchives archives_;
  TaskPool slow_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_engine_service(const ServiceContext& context) {
  return std::make_shared<EngineService>(context);
}

}  // namespace ferry::vllm
