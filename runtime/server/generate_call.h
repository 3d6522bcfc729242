#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ferry/v1/inference.grpc.pb.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/preparations.h"
#include "runtime/server/task_pool.h"

namespace ferry {

/// Counts what open calls hold, so that the memory of all of them together has a bound. Any thread may call any method.
class OpenCalls {
 public:
  OpenCalls(int64_t max_calls, int64_t max_bytes) : max_calls_(max_calls), max_bytes_(max_bytes) {}

  /// Lets a call with a message of `num_bytes` in; false if there are too many or they hold too much. Who got in must leave.
  [[nodiscard]] bool enter(int64_t num_bytes);
  void leave(int64_t num_bytes);

 private:
  const int64_t max_calls_, max_bytes_;
  std::mutex mutex_;  // guards what follows
  int64_t num_calls_ = 0, num_bytes_ = 0;
};

/// What all calls of a service share.
struct GenerateContext {
  EngineClient& engine;
  const ServerLimits limits;
  Preparations& preparations;
  TaskPool tokenizers;     // of prompts that are text alone: pictures, which take long, keep nobody else waiting
  TaskPool media_readers;  // of the others
  const std::shared_ptr<OpenCalls> open_calls;  // calls that outlive the service leave it, too
};

/// One Generate call. Several parties hold it: gRPC until OnDone (through self_), a tokenizer's thread until the request is
/// submitted, the coordinator until the request's last event (through the sink), and whoever is running one of its methods.
///
/// gRPC's thread only looks at sizes; the prompt is made on a thread of the pool. Until it is submitted, the request is among
/// the preparations. From then on the engine's thread brings
/// events. At most one message is being written and one waits, into which later events are merged: a caller who does not read
/// costs the ids, the logprobs and the text of its answer, which max_tokens and the context bound. The status follows the last
/// message.
class GenerateCall : public grpc::ServerWriteReactor<v1::GenerateResponse>, public std::enable_shared_from_this<GenerateCall> {
 public:
  explicit GenerateCall(GenerateContext& shared) : shared_(shared), open_calls_(shared.open_calls) {}
  ~GenerateCall() override;
  GenerateCall(const GenerateCall&) = delete;
  GenerateCall& operator=(const GenerateCall&) = delete;

  /// Takes the call that gRPC brought, which both stay until OnDone; `owner` is who makes it.
  void start(grpc::CallbackServerContext& context, const v1::GenerateRequest& message, std::string owner);
  /// Ends the call with `status` at once, instead of start().
  void refuse(const grpc::Status& status);

  void OnCancel() override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void hand_to_pool(const grpc::CallbackServerContext& context, const v1::GenerateRequest& message, std::string owner);
  void prepare(const grpc::CallbackServerContext& context, const v1::GenerateRequest& message, const std::string& owner);
  Request make_request(const grpc::CallbackServerContext& context, const v1::GenerateRequest& message) const;
  void tell_abort(const std::string& request_id);
  void stop_preparing(std::optional<RequestNumber> number, const grpc::Status& failure);
  void abort_request();
  void on_event(const GenerateEvent& event);
  void end(const grpc::Status& status);
  void advance();
  void wait_for_reader();

  GenerateContext& shared_;  // not after OnDone
  const std::shared_ptr<OpenCalls> open_calls_;
  std::shared_ptr<GenerateCall> self_;
  grpc::CallbackServerContext* context_ = nullptr;
  std::chrono::steady_clock::time_point arrival_;
  int64_t num_message_bytes_ = -1;  // once it was let in
  Preparations::Place place_ = 0;   // while it is being prepared
  std::atomic<bool> is_cancelled_{false};
  std::atomic<bool> is_aborted_{false};  // while it was being prepared
  grpc::Alarm reader_alarm_;

  std::mutex mutex_;  // guards what follows
  v1::GenerateResponse writing_;
  std::optional<v1::GenerateResponse> waiting_;
  std::optional<grpc::Status> status_;   // set once the request has ended; nothing is written after what waits then
  std::optional<RequestNumber> number_;  // once submitted
  bool is_preparing_ = false;            // the message is in use, or about to be
  bool is_writing_ = false;
  bool is_finished_ = false;
};

}  // namespace ferry
