#include "runtime/server/generate_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "ferry/v1/inference.grpc.pb.h"
#include "runtime/server/status.h"

namespace ferry {
namespace {

constexpr std::size_t kRequestIdBytesMax = 128;

std::vector<TokenId> encode_chat(const Backend& backend, const v1::Chat& chat) {
  if (chat.messages().empty()) throw_invalid("chat.messages is empty, at least one message is needed");
  std::vector<ChatMessage> messages;
  for (const v1::ChatMessage& message : chat.messages()) {
    ChatMessage& added = messages.emplace_back();
    added.role = message.role();
    added.content = message.content();
  }
  switch (chat.thinking()) {
    case v1::Chat::THINKING_UNSPECIFIED: return backend.encode_chat(messages, Thinking::kDefault);
    case v1::Chat::THINKING_ON: return backend.encode_chat(messages, Thinking::kOn);
    case v1::Chat::THINKING_OFF: return backend.encode_chat(messages, Thinking::kOff);
    default:
      throw_invalid("chat.thinking is " + std::to_string(chat.thinking()) + ", allowed are 0 (default), 1 (on) and 2 (off)");
  }
}

std::vector<TokenId> prompt_of(const Backend& backend, const v1::GenerateRequest& request) {
  switch (request.input_case()) {
    case v1::GenerateRequest::kText: return backend.encode_text(request.text());
    case v1::GenerateRequest::kChat: return encode_chat(backend, request.chat());
    case v1::GenerateRequest::kTokenIds: return {request.token_ids().ids().begin(), request.token_ids().ids().end()};
    case v1::GenerateRequest::INPUT_NOT_SET: break;
  }
  throw_invalid("the request has no input, one of text, chat and token_ids is needed");
}

SamplingParams sampling_of(const v1::Sampling& sampling) {
  SamplingParams params;
  if (sampling.has_temperature()) params.temperature = sampling.temperature();
  if (sampling.has_top_p()) params.top_p = sampling.top_p();
  if (sampling.has_top_k()) params.top_k = sampling.top_k();
  if (sampling.has_seed()) params.seed = sampling.seed();
  if (sampling.has_max_tokens()) params.max_tokens = sampling.max_tokens();
  params.ignore_eos = sampling.ignore_eos();
  params.stop_token_ids.assign(sampling.stop_token_ids().begin(), sampling.stop_token_ids().end());
  params.stop.assign(sampling.stop().begin(), sampling.stop().end());
  return params;
}

/// A call's deadline on the steady clock; none if it is further away than any request can last.
std::optional<std::chrono::steady_clock::time_point> deadline_of(const grpc::CallbackServerContext& context) {
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  const auto now = std::chrono::system_clock::now();
  if (context.deadline() > now + kLongest) return std::nullopt;
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(context.deadline() - now);
}

v1::Completion::FinishReason finish_reason_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return v1::Completion::FINISH_REASON_STOP;
    case FinishReason::kLength: return v1::Completion::FINISH_REASON_LENGTH;
    case FinishReason::kAborted: return v1::Completion::FINISH_REASON_ABORTED;
    case FinishReason::kDeadline: return v1::Completion::FINISH_REASON_DEADLINE;
    case FinishReason::kNone:
    case FinishReason::kError: break;
  }
  return v1::Completion::FINISH_REASON_UNSPECIFIED;
}

/// The status of a stream whose request ended with `event`.
grpc::Status status_of(const GenerateEvent& event, const std::string& request_id) {
  switch (event.finish_reason) {
    case FinishReason::kAborted: return {grpc::StatusCode::CANCELLED, "request '" + request_id + "' was aborted"};
    case FinishReason::kDeadline:
      return {grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline of request '" + request_id + "' passed after " +
                                                       std::to_string(event.completion_tokens) + " tokens"};
    case FinishReason::kError:
      return event.error ? to_status(*event.error) : grpc::Status(grpc::StatusCode::INTERNAL, "the engine failed");
    default: return grpc::Status::OK;
  }
}

v1::GenerateResponse to_response(const GenerateEvent& event, const std::string& request_id) {
  constexpr int64_t kNsPerUs = 1000;
  v1::GenerateResponse response;
  response.mutable_token_ids()->Add(event.token_ids.begin(), event.token_ids.end());
  response.set_text(event.text);
  if (event.finish_reason == FinishReason::kNone) return response;
  v1::Completion& completion = *response.mutable_completion();
  completion.set_finish_reason(finish_reason_of(event.finish_reason));
  completion.set_prompt_tokens(event.prompt_tokens);
  completion.set_completion_tokens(event.completion_tokens);
  completion.mutable_timings()->set_queue_us(event.timings.queue_ns / kNsPerUs);
  completion.mutable_timings()->set_first_token_us(event.timings.first_token_ns / kNsPerUs);
  completion.mutable_timings()->set_total_us(event.timings.total_ns / kNsPerUs);
  completion.set_request_id(request_id);
  return response;
}

/// One Generate call. Three parties hold it: gRPC until OnDone (through self_), the coordinator until the request's last event
/// (through the sink), and whoever is running one of its methods.
///
/// The engine's thread puts messages into queue_; at most one write is under way, and its completion starts the next one. The
/// status follows the last write.
class GenerateCall : public grpc::ServerWriteReactor<v1::GenerateResponse>, public std::enable_shared_from_this<GenerateCall> {
 public:
  explicit GenerateCall(Backend& backend) : backend_(backend) {}

  /// Hands the request over; an error ends the call.
  void start(const grpc::CallbackServerContext& context, const v1::GenerateRequest& message, const std::string& fallback_id) {
    self_ = shared_from_this();
    id_ = message.request_id().empty() ? fallback_id : message.request_id();
    try {
      if (id_.size() > kRequestIdBytesMax) {
        throw_invalid("request_id has " + std::to_string(id_.size()) + " bytes, at most " + std::to_string(kRequestIdBytesMax) +
                      " are allowed");
      }
      Request request;
      request.arrival = std::chrono::steady_clock::now();  // before the prompt is tokenized
      request.id = id_;
      request.prompt = prompt_of(backend_, message);
      request.sampling = sampling_of(message.sampling());
      request.deadline = deadline_of(context);
      backend_.submit(std::move(request), [call = self_](const GenerateEvent& event) { call->on_event(event); });
    } catch (const Error& e) {
      end(to_status(e));
      return;
    } catch (const std::exception& e) {  // such as std::bad_alloc for a very long prompt
      end({grpc::StatusCode::RESOURCE_EXHAUSTED, one_line(e.what())});
      return;
    }
    // A call that was cancelled while its request was on the way in has missed its OnCancel.
    if (is_cancelled_after_submit()) backend_.abort(id_);
  }

  void OnCancel() override {
    const bool is_open = [&] {
      const std::lock_guard lock(mutex_);
      is_cancelled_ = true;
      return is_submitted_ && !status_;
    }();
    if (is_open) backend_.abort(id_);
    end(grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled"));
  }

  void OnWriteDone(bool ok) override {
    std::unique_lock lock(mutex_);
    is_writing_ = false;
    queue_.pop_front();
    if (!ok) queue_.clear();
    const bool is_broken = !ok && !status_;
    if (is_broken) status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away");
    advance();
    lock.unlock();
    if (is_broken) backend_.abort(id_);
  }

  void OnDone() override { const auto last_use = std::move(self_); }

 private:
  /// On the engine's thread.
  void on_event(const GenerateEvent& event) {
    const std::lock_guard lock(mutex_);
    if (status_) return;
    const bool is_last = event.finish_reason != FinishReason::kNone;
    if (event.finish_reason != FinishReason::kError) queue_.push_back(to_response(event, id_));
    if (is_last) status_ = status_of(event, id_);
    advance();
  }

  /// Ends the call with `status` unless it has one already.
  void end(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    if (!status_) status_ = status;
    advance();
  }

  bool is_cancelled_after_submit() {
    const std::lock_guard lock(mutex_);
    is_submitted_ = true;
    return is_cancelled_;
  }

  /// Starts the next write or, after the last one, ends the call. Needs mutex_.
  void advance() {
    if (is_writing_ || is_finished_) return;
    if (is_cancelled_) queue_.clear();
    if (!queue_.empty()) {
      is_writing_ = true;
      StartWrite(&queue_.front());
    } else if (status_) {
      is_finished_ = true;
      Finish(*status_);
    }
  }

  Backend& backend_;
  std::string id_;
  std::shared_ptr<GenerateCall> self_;

  std::mutex mutex_;                        // guards what follows
  std::deque<v1::GenerateResponse> queue_;  // not yet written; the front one is being written while is_writing_
  std::optional<grpc::Status> status_;      // set once the request has ended; nothing is queued after that
  bool is_submitted_ = false;
  bool is_cancelled_ = false;
  bool is_writing_ = false;
  bool is_finished_ = false;
};

class GenerateService : public v1::Inference::CallbackService {
 public:
  explicit GenerateService(Backend& backend) : backend_(backend) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override {
    const auto call = std::make_shared<GenerateCall>(backend_);
    call->start(*context, *request, "grpc-" + std::to_string(next_id_.fetch_add(1)));
    return call.get();
  }

  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context, const v1::GetModelInfoRequest*,
                                         v1::GetModelInfoResponse* response) override {
    const ModelInfo& info = backend_.model_info();
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
    if (info.generation.temperature) defaults.set_temperature(*info.generation.temperature);
    if (info.generation.top_p) defaults.set_top_p(*info.generation.top_p);
    if (info.generation.top_k) defaults.set_top_k(*info.generation.top_k);
    return answer(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context, const v1::GetLoadRequest*,
                                    v1::GetLoadResponse* response) override {
    const EngineLoad load = backend_.load();
    response->set_running_requests(load.running_requests);
    response->set_waiting_requests(load.waiting_requests);
    response->set_max_running_requests(load.max_running_requests);
    response->set_max_waiting_requests(load.max_waiting_requests);
    response->set_kv_blocks_total(load.kv_blocks_total);
    response->set_kv_blocks_used(load.kv_blocks_used);
    response->set_steps(load.steps);
    response->set_prompt_tokens(load.prompt_tokens);
    response->set_generated_tokens(load.generated_tokens);
    response->set_balancedness(load.balancedness);
    return answer(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override {
    if (request->request_id().empty()) {
      return answer(context, {grpc::StatusCode::INVALID_ARGUMENT, "request_id is empty, it must name a request"});
    }
    response->set_found(backend_.abort(request->request_id()));
    return answer(context, grpc::Status::OK);
  }

 private:
  static grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  Backend& backend_;
  std::atomic<int64_t> next_id_{0};
};

}  // namespace

std::shared_ptr<grpc::Service> make_generate_service(Backend& backend) { return std::make_shared<GenerateService>(backend); }

}  // namespace ferry
