#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/server/answer_bytes.h"
#include "runtime/server/caller.h"
#include "runtime/server/generate_context.h"
#include "runtime/server/log/request_note.h"
#include "runtime/server/prompt_task.h"
#include "runtime/server/status.h"

namespace ferry {

class CompiledGrammar;
struct GrammarSpec;

/// What a call asks for, as its service's message has it, which it borrows until the call has made its requests.
class CallMessage {
 public:
  virtual ~CallMessage() = default;

  virtual int64_t num_bytes() const = 0;  // of memory
  virtual const std::string& request_id() const = 0;
  /// Refuses what is wrong or too large before anything is made of it. Throws Error{kInvalidArgument} that names the field, its
  /// value and what is allowed.
  virtual void check(const ServerLimits& limits) = 0;
  /// The step that make_requests() is, without the key. Of one that was checked, as what follows.
  virtual PromptStep step(const ServerLimits& limits) const = 0;
  /// Says whether its answer leaves as it comes.
  virtual AnswerForm answer_form() const = 0;
  /// Reads what the text has to be like; null if the message does not say. Takes time, and throws Error. Valid as long as the
  /// message.
  virtual const GrammarSpec* read_grammar() { return nullptr; }
  virtual bool has_grammar() const { return false; }
  /// One for each completion, siblings if there are several; without id, owner, arrival and deadline. Takes time: milliseconds
  /// for 10 kB of text, tens of them for a picture. Throws Error.
  virtual std::vector<Request> make_requests(EngineClient& engine, const PromptTask& task) = 0;
};

/// Makes messages of what is told of a call's requests. One thread at a time.
template <class Response>
class CallAnswer {
 public:
  virtual ~CallAnswer() = default;

  /// Before anything is told: what was asked for.
  virtual void begin(std::span<const Request> /*requests*/) {}
  /// On the engine's thread.
  virtual void add(std::size_t choice, const GenerateEvent& event) = 0;
  /// The next message, with all that was told and can be said; absent: there is nothing to say now. What waits has a bound.
  virtual std::optional<Response> next() = 0;
  /// The choice that the last message of next() belongs to.
  virtual std::size_t told_choice() const { return 0; }
};

/// One call for tokens. Several parties hold it: gRPC until its reactor's OnDone (through self_), a pool's thread until the
/// requests are submitted, the coordinator until each request's last event (through the sinks), and whoever is running one of
/// its methods.
///
/// gRPC's thread only looks at sizes; prompts are made on threads of PromptPools, one step after the other. Until they are
/// submitted, the call is among the preparations. From then on the engine's thread brings events. At most one message is being
/// written. Events that come meanwhile are kept as one message. So a caller that does not read costs the ids, the logprobs and
/// the text of its answer, which --answer-bytes bounds. The status follows the last message. An allocation that fails ends the
/// call alone.
class GenerateCall : public std::enable_shared_from_this<GenerateCall> {
 public:
  /// `route`: its method, with the service, for the log; outlives the call.
  GenerateCall(GenerateContext& shared, const char* route);
  virtual ~GenerateCall();
  GenerateCall(const GenerateCall&) = delete;
  GenerateCall& operator=(const GenerateCall&) = delete;

  /// Takes the call that gRPC brought, which both stay until OnDone.
  void start(grpc::CallbackServerContext& context, std::unique_ptr<CallMessage> message, Caller caller);
  /// Ends the call with `status` at once, instead of start().
  void refuse(const grpc::Status& status);

 protected:
  // The reactor's OnCancel, OnWriteDone and OnDone.
  void cancel();
  void go_on(bool is_written);
  void leave();

 private:
  // The answer's and the reactor's; all need mutex_.
  virtual void begin_answer(std::span<const Request> requests) = 0;
  virtual void add_event(std::size_t choice, const GenerateEvent& event) = 0;
  /// Begins to write the next message. Returns the choice that it belongs to, or nothing if there is none.
  virtual std::optional<std::size_t> write_next() = 0;
  virtual void finish(const grpc::Status& status) = 0;

  void hand_to_pool();
  void run_on(PromptStep step, void (GenerateCall::*work)());
  void find_grammar();
  void compile_grammar();
  void prepare();
  void check_in() const;
  std::vector<Request> make_requests() const;
  std::vector<RequestNumber> submit(std::vector<Request> requests);
  void tell_abort();
  void end_preparing(const std::vector<RequestNumber>& numbers, const grpc::Status& failure);
  bool stop_preparing(std::vector<RequestNumber> numbers, const grpc::Status& failure);
  void abort_requests();
  void on_event(std::size_t choice, const GenerateEvent& event);
  void take_event(std::size_t choice, const GenerateEvent& event);
  void hold(std::size_t choice, int64_t num_bytes);
  void end_choice(const GenerateEvent& event);
  void end_badly(const grpc::Status& status);
  void end(const grpc::Status& status);
  void advance();
  bool begin_write();
  void wait_for_reader();
  void log_end();

  GenerateContext& shared_;  // not after OnDone
  const std::shared_ptr<OpenCalls> open_calls_;
  const char* const route_;
  const Clock::Time arrival_;
  const std::shared_ptr<RequestNote> note_ = shared_.log == nullptr ? nullptr : std::make_shared<RequestNote>();
  std::shared_ptr<GenerateCall> self_;
  grpc::CallbackServerContext* context_ = nullptr;
  std::unique_ptr<CallMessage> message_;  // of use while the call is being prepared
  Caller caller_;
  std::shared_ptr<const CompiledGrammar> grammar_;  // so that it is still there when matchers are made; one thread at a time
  std::optional<Clock::Time> deadline_;
  int64_t num_message_bytes_ = -1;  // once it was let in
  Preparations::Place place_ = 0;   // while it is being prepared
  std::atomic<bool> is_cancelled_{false};
  std::atomic<bool> is_aborted_{false};  // while it was being prepared
  grpc::Alarm reader_alarm_;

  std::mutex mutex_;                     // guards what follows
  std::size_t num_open_ = 1;             // requests that have not ended
  std::optional<grpc::Status> failure_;  // of the first request that ended badly
  std::optional<grpc::Status> status_;   // set once all have ended, or the call has; nothing is told after that
  std::vector<RequestNumber> numbers_;   // once submitted
  HeldAnswer held_;                      // what was told and not written yet
  std::vector<int64_t> waiting_bytes_;   // of these, by choice
  int64_t writing_bytes_ = 0;            // of these, in the message that is being written
  bool is_preparing_ = false;            // the message is in use, or about to be
  bool drops_answer_ = false;            // one of its requests was refused: nothing is told of the others
  bool is_writing_ = false;
  bool is_finished_ = false;
};

/// A call whose answer is a stream.
template <class Response>
class StreamedCall final : public grpc::ServerWriteReactor<Response>, public GenerateCall {
 public:
  StreamedCall(GenerateContext& shared, std::unique_ptr<CallAnswer<Response>> answer, const char* route)
      : GenerateCall(shared, route), answer_(std::move(answer)) {}

  void OnCancel() override { cancel(); }
  void OnWriteDone(bool ok) override { go_on(ok); }
  void OnDone() override { leave(); }

 private:
  void begin_answer(std::span<const Request> requests) override { answer_->begin(requests); }
  void add_event(std::size_t choice, const GenerateEvent& event) override { answer_->add(choice, event); }
  std::optional<std::size_t> write_next() override {
    std::optional<Response> next = answer_->next();
    if (!next) return std::nullopt;
    writing_ = std::move(*next);
    this->StartWrite(&writing_);
    return answer_->told_choice();
  }
  void finish(const grpc::Status& status) override { this->Finish(status); }

  const std::unique_ptr<CallAnswer<Response>> answer_;
  Response writing_;
};

/// A call whose answer is one message: `response`, which gRPC keeps until the call has ended.
template <class Response>
class WholeCall final : public grpc::ServerUnaryReactor, public GenerateCall {
 public:
  WholeCall(GenerateContext& shared, std::unique_ptr<CallAnswer<Response>> answer, Response& response, const char* route)
      : GenerateCall(shared, route), answer_(std::move(answer)), response_(response) {}

  void OnCancel() override { cancel(); }
  void OnDone() override { leave(); }

 private:
  void begin_answer(std::span<const Request> requests) override { answer_->begin(requests); }
  void add_event(std::size_t choice, const GenerateEvent& event) override { answer_->add(choice, event); }
  std::optional<std::size_t> write_next() override { return std::nullopt; }
  void finish(const grpc::Status& status) override {
    grpc::Status told = status;
    try {
      if (std::optional<Response> whole = status.ok() ? answer_->next() : std::nullopt) response_ = std::move(*whole);
    } catch (const std::exception&) {
      told = current_status();
    }
    this->Finish(told);
  }

  const std::unique_ptr<CallAnswer<Response>> answer_;
  Response& response_;
};

}  // namespace ferry
