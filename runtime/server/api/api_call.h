#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/server/api/api_context.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/api_task.h"
#include "runtime/server/http/reply.h"
#include "runtime/server/otlp/trace_context.h"

namespace ferry::api {

/// One call that wants tokens, from its arrival to its answer. Several parties hold it: the thread that prepares it, and the
/// coordinator through the sinks of its requests, one for each choice.
///
/// The I/O thread only hands it to a pool. There the body is read, the grammar compiled, the prompt made and the requests
/// submitted, each step on threads for its kind of work. Until then the call is among the preparations. The engine's thread
/// brings events. Of a stream they become text at once, which is written without waiting for the client; of a whole answer they
/// are kept, and a pool writes it. A client that goes ends the requests, and so does the failure of one of them the others. An
/// allocation that fails is the call's error alone.
class ApiCall : public std::enable_shared_from_this<ApiCall> {
 public:
  /// Begins a call; on the I/O thread. `context` must outlive the calls.
  static void start(ApiContext& context, HttpRequest request, HttpReply reply, const ReadTask& read, const ErrorForm& errors);

  /// `key`: PromptStep's.
  ApiCall(ApiContext& context, std::string key, HttpReply reply, const ErrorForm& errors);
  ~ApiCall();
  ApiCall(const ApiCall&) = delete;
  ApiCall& operator=(const ApiCall&) = delete;

 private:
  void begin(HttpRequest request, const ReadTask& read);
  void run_on(PromptStep step, std::function<void()> work);
  void read_request(const HttpRequest& request, const ReadTask& read);
  void prepare_grammar(const std::shared_ptr<ApiTask>& task);
  void compile_grammar(const std::shared_ptr<ApiTask>& task);
  void prepare_with(std::shared_ptr<const CompiledGrammar> grammar, const std::shared_ptr<ApiTask>& task);
  void prepare(ApiTask& task);
  void submit(PreparedCall prepared);
  void release_events();
  void check_in() const;

  void on_event(std::size_t choice, const GenerateEvent& event);
  void drop();
  void handle(std::size_t choice, const GenerateEvent& event);
  void finish();
  void send_whole();
  void fail(const ApiError& error);
  void answer_with(const ApiError& error);
  void end_with(const ApiError& error);
  void on_client_gone();
  void abort_requests();
  void leave_preparations();

  ApiContext& context_;
  const std::chrono::steady_clock::time_point arrival_ = std::chrono::steady_clock::now();
  const std::string key_;
  const std::string owner_;  // of its requests: nobody else's name, so that ids need not differ between calls
  const ErrorForm errors_;
  HttpHeaders headers_;                  // of the answer
  std::optional<TraceContext> caller_;   // whose work it is part of
  std::shared_ptr<RequestNote> note_;    // for the log; null: there is none
  std::atomic<bool> is_gone_{false};     // the client
  std::atomic<bool> is_aborted_{false};  // while it was being prepared

  std::mutex mutex_;  // guards what follows
  std::optional<Preparations::Place> place_;
  std::optional<HttpReply> reply_;      // until the answer begins
  std::shared_ptr<HttpStream> stream_;  // of a streamed one
  std::unique_ptr<Answer> answer_;
  const std::shared_ptr<HeldAnswer> held_;  // of a whole one; the reply's callback shares it until the client has all
  std::vector<RequestNumber> numbers_;
  std::deque<std::pair<std::size_t, GenerateEvent>> held_events_;  // that came while not all requests were submitted
  bool holds_events_ = true;
  std::size_t num_open_ = 0;  // choices that have not ended
  bool is_over_ = false;      // answered, or about to be
};

}  // namespace ferry::api
