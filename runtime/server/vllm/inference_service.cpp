#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "runtime/base/quoting.h"
#include "runtime/server/caller.h"
#include "runtime/server/generate_call.h"
#include "runtime/server/generate_request.h"
#include "runtime/server/vllm/abort_requests.h"
#include "runtime/server/vllm/inference_answer.h"
#include "runtime/server/vllm/inference_request.h"
#include "runtime/server/vllm/services.h"
#include "vllm/inference.grpc.pb.h"

namespace ferry::vllm {
namespace {

using ::vllm::GenerateRequest;
using ::vllm::GenerateResponse;

class InferenceMessage final : public CallMessage {
 public:
  InferenceMessage(const GenerateRequest& message, const Settings& settings, bool streams)
      : message_(message), settings_(settings), streams_(streams) {}

  int64_t num_bytes() const override { return static_cast<int64_t>(message_.SpaceUsedLong()); }
  const std::string& request_id() const override { return message_.request_id(); }
  void check(const ServerLimits& limits) override {
    fields_ = read_inference_request(message_, settings_, limits);
    if (fields_.num_choices > 1 && !streams_) {
      throw_invalid("sampling.num_sequences is " + std::to_string(fields_.num_choices) +
                    "; allowed: 1, an answer of Generate has room for one; GenerateStream for more");
    }
  }
  PromptStep step(const ServerLimits& limits) const override { return step_of(fields_, limits); }
  bool has_grammar() const override { return fields_.constraint.has_value(); }
  const GrammarSpec* read_grammar() override { return vllm::read_grammar(fields_); }
  AnswerForm answer_form() const override { return streams_ ? AnswerForm::kStream : AnswerForm::kWhole; }
  std::vector<Request> make_requests(EngineClient& engine, const PromptTask& task) override {
    return vllm::make_requests(fields_, engine, task, answer_form());
  }

 private:
  const GenerateRequest& message_;
  const Settings& settings_;
  const bool streams_;
  GenerateFields fields_;
};

/// There is one copy of the model.
grpc::Status check_rank(const grpc::CallbackServerContext& context) {
  const auto rank = context.client_metadata().find("x-data-parallel-rank");
  if (rank == context.client_metadata().end() || rank->second == "0") return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT,
          "metadata x-data-parallel-rank is " + in_quotes({rank->second.data(), rank->second.size()}) + "; allowed: 0"};
}

class InferenceService final : public ::vllm::Inference::CallbackService {
 public:
  explicit InferenceService(const ServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context, const GenerateRequest* request,
                                     GenerateResponse* response) override {
    auto answer = std::make_unique<InferenceAnswer>(InferenceForm(request->response()), /*streams=*/false);
    const auto call =
        std::make_shared<WholeCall<GenerateResponse>>(context_.calls, std::move(answer), *response, "/vllm.Inference/Generate");
    begin(*call, *context, *request, /*streams=*/false);
    return call.get();
  }

  grpc::ServerWriteReactor<GenerateResponse>* GenerateStream(grpc::CallbackServerContext* context,
                                                             const GenerateRequest* request) override {
    auto answer = std::make_unique<InferenceAnswer>(InferenceForm(request->response()), /*streams=*/true);
    const auto call =
        std::make_shared<StreamedCall<GenerateResponse>>(context_.calls, std::move(answer), "/vllm.Inference/GenerateStream");
    begin(*call, *context, *request, /*streams=*/true);
    return call.get();
  }

 private:
  void begin(GenerateCall& call, grpc::CallbackServerContext& context, const GenerateRequest& request, bool streams) {
    Caller caller = identify_caller(context, context_.keys);
    if (!caller.status.ok()) return call.refuse(caller.status);
    if (const grpc::Status status = check_rank(context); !status.ok()) return call.refuse(status);
    call.start(context, std::make_unique<InferenceMessage>(request, context_.settings, streams), std::move(caller));
  }

  const ServiceContext context_;
};

class ControlService final : public ::vllm::Control::CallbackService {
 public:
  explicit ControlService(const ServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const ::vllm::AbortRequest* request,
                                  ::vllm::AbortResponse*) override {
    return abort_requests(*context, context_, request->request_ids());
  }

 private:
  const ServiceContext context_;
};

}  // namespace

int64_t longest_message(const ServerLimits& limits, const PromptBounds& bounds, int64_t vocab_size) {
  constexpr int64_t kConstraintFraming = 64 << 10;  // of choices beside their text
  // A prompt may come as tokens and as the text that they are of, and with a constraint.
  const int64_t beside = limits.prompt_bytes + GrammarLimits().text_bytes + kConstraintFraming;
  return std::min(ferry::longest_message(limits, bounds, vocab_size) + beside, limits.grpc_message_bytes);
}

std::shared_ptr<grpc::Service> make_inference_service(const ServiceContext& context) {
  return std::make_shared<InferenceService>(context);
}

std::shared_ptr<grpc::Service> make_control_service(const ServiceContext& context) {
  return std::make_shared<ControlService>(context);
}

}  // namespace ferry::vllm
