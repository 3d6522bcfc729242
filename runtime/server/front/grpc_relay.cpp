#include "runtime/server/front/grpc_relay.h"

#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/server/front/grpc_call_traits.h"
#include "runtime/server/front/http_proxy.h"

namespace ferry {
namespace {

using grpc::ByteBuffer;
using ServerReactor = grpc::ServerGenericBidiReactor;

/// What only gRPC itself may put into metadata.
bool is_reserved(std::string_view name) { return name.starts_with(":") || name.starts_with("grpc-"); }

std::string_view view_of(const grpc::string_ref& text) { return {text.data(), text.size()}; }

class Relay;

/// One coordinator's part of a call. Alive while its relay is.
class Attempt final : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  Attempt(Relay& relay, std::unique_ptr<CoordinatorPool::OpenCall> open)
      : relay_(relay), coordinator_(open->coordinator()), open_(std::move(open)) {}

  grpc::ClientContext& context() { return context_; }
  ByteBuffer& response() { return response_; }
  std::size_t coordinator() const { return coordinator_; }
  /// The coordinator has no part in it any more.
  void close() { open_.reset(); }

  /// `first`: null if the client sent nothing. What else is begun from outside of this reactor's own reactions is begun before
  /// the last read has failed: until then the call is held.
  void begin(grpc::GenericStub& stub, const std::string& method, const ByteBuffer* first) {
    stub.PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
    AddHold();
    StartRead(&response_);
    if (first != nullptr) StartWrite(first);
    StartCall();
  }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  Relay& relay_;
  const std::size_t coordinator_;
  std::unique_ptr<CoordinatorPool::OpenCall> open_;
  grpc::ClientContext context_;
  ByteBuffer response_;
};

/// The client's part, which says what happens. At most one message is on its way in each direction.
class Relay final : public ServerReactor, public std::enable_shared_from_this<Relay> {
 public:
  Relay(GrpcRelayContext& relays, grpc::GenericCallbackServerContext& call)
      : relays_(relays), call_(call), kind_(method_kind(call.method())) {}

  void begin() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

  // Of the client.

  void OnReadDone(bool ok) override {
    if (!has_begun_) return on_first(ok);
    const std::scoped_lock lock(mutex_);
    if (ok) ++num_requests_;
    message_waits_ = ok;
    request_ended_ = !ok;
    send_more();
  }

  void OnWriteDone(bool ok) override {
    const std::shared_ptr<Attempt> attempt = current();
    if (!ok) attempt->context().TryCancel();
    attempt->StartRead(&attempt->response());
  }

  void OnCancel() override {
    std::shared_ptr<Attempt> attempt;
    {
      const std::scoped_lock lock(mutex_);
      is_cancelled_ = true;
      attempt = attempt_;
    }
    if (attempt) attempt->context().TryCancel();
  }

  void OnDone() override { const std::shared_ptr<Relay> last = std::move(self_); }

  // Of the coordinator that is asked.

  void on_sent() {
    const std::scoped_lock lock(mutex_);
    const bool was_later = std::exchange(is_sending_request_, false);
    is_writing_ = false;
    if (was_later) StartRead(&request_);
    send_more();
  }

  void on_response(Attempt& attempt, bool ok) {
    if (ok) {
      if (!std::exchange(has_answered_, true)) {
        pass_initial_metadata(attempt);
        const std::scoped_lock lock(mutex_);
        if (!is_writing_) first_.Clear();  // nobody else is asked
      }
      return StartWrite(&attempt.response());
    }
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    attempt.RemoveHold();
  }

  void on_tried(Attempt& attempt, grpc::Status status) {
    const std::size_t coordinator = attempt.coordinator();
    attempt.close();
    bool is_cancelled = false, may_repeat = false;
    {
      const std::scoped_lock lock(mutex_);
      is_cancelled = is_cancelled_;
      may_repeat = num_requests_ <= 1 && !has_answered_;
      if (std::exchange(is_lost_, false))
        status = {grpc::StatusCode::UNAVAILABLE,
                  "coordinator " + address(coordinator) + " was lost: it does not answer any more"};
    }
    if (is_cancelled) return Finish(status);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      judge(coordinator, status.error_message());
      const bool has_another =
          tried_.size() < static_cast<std::size_t>(kTriesMax) && relays_.pool.has_another(FrontPort::kGrpc, tried_);
      if (may_repeat && has_another) return ask();
    }
    finish(attempt, status);
  }

 private:
  /// The first message, or none.
  void on_first(bool ok) {
    has_begun_ = true;
    num_requests_ = ok ? 1 : 0;
    request_ended_ = !ok;
    if (ok) {
      first_ = request_;
      if (kind_ == MethodKind::kPrompt) traits_ = grpc_call_traits(call_.method(), first_);
    }
    const auto session = call_.client_metadata().find(kSessionHeader);
    if (session != call_.client_metadata().end()) traits_.session = session_hash(view_of(session->second));
    if (ok) StartRead(&request_);
    ask();
  }

  /// Gives the call to a coordinator, or ends it.
  void ask() {
    auto open = relays_.pool.open({.traits = traits_,
                                   .port = FrontPort::kGrpc,
                                   .has_prompt = kind_ == MethodKind::kPrompt,
                                   .tried = tried_,
                                   .on_lost = [self = weak_from_this(), try_idx = tried_.size()] {
                                     if (const auto relay = self.lock()) relay->give_up(try_idx);
                                   }});
    if (!open) return Finish({grpc::StatusCode::UNAVAILABLE, "no coordinator serves"});
    const std::size_t coordinator = open->coordinator();
    tried_.push_back(coordinator);
    const auto attempt = std::make_shared<Attempt>(*this, std::move(open));
    copy_call(call_, relays_.mark, attempt->context());
    bool is_cancelled = false;
    {
      const std::scoped_lock lock(mutex_);
      attempts_.push_back(attempt);
      attempt_ = attempt;
      is_writing_ = num_requests_ > 0;
      is_over_ = is_closed_ = is_lost_ = false;
      attempt->begin(relays_.channels.stub(coordinator), call_.method(), is_writing_ ? &first_ : nullptr);
      is_cancelled = is_cancelled_;
      send_more();
    }
    if (is_cancelled) attempt->context().TryCancel();
  }

  /// Sends what the client has sent since, if there is anything. With the lock held.
  void send_more() {
    if (attempt_ == nullptr || is_writing_ || is_over_ || is_closed_) return;
    if (std::exchange(message_waits_, false)) {
      is_writing_ = is_sending_request_ = true;
      attempt_->StartWrite(&request_);
    } else if (request_ended_) {
      is_closed_ = true;
      attempt_->StartWritesDone();
    }
  }

  /// Of the try with this place among all: its coordinator says nothing any more.
  void give_up(std::size_t try_idx) {
    std::shared_ptr<Attempt> attempt;
    {
      const std::scoped_lock lock(mutex_);
      if (try_idx + 1 != attempts_.size()) return;
      is_lost_ = true;
      attempt = attempt_;
    }
    attempt->context().TryCancel();
  }

  /// Whoever says UNAVAILABLE is there; a connection that is gone is another matter.
  void judge(std::size_t coordinator, const std::string& reason) {
    if (relays_.channels.is_connected(coordinator)) return;
    if (has_answered_) return relays_.pool.count_broken(coordinator);
    relays_.pool.mark_down(coordinator, "gRPC: " + reason);
  }

  void pass_initial_metadata(Attempt& attempt) {
    for (const auto& [name, value] : attempt.context().GetServerInitialMetadata()) {
      if (!is_reserved(view_of(name))) call_.AddInitialMetadata(std::string(view_of(name)), std::string(view_of(value)));
    }
  }

  void finish(Attempt& attempt, const grpc::Status& status) {
    for (const auto& [name, value] : attempt.context().GetServerTrailingMetadata()) {
      if (!is_reserved(view_of(name))) call_.AddTrailingMetadata(std::string(view_of(name)), std::string(view_of(value)));
    }
    Finish(status);  // the relay may be gone when this returns
  }

  const std::string& address(std::size_t coordinator) const { return relays_.pool.address(coordinator).grpc; }

  std::shared_ptr<Attempt> current() const {
    const std::scoped_lock lock(mutex_);
    return attempt_;
  }

  GrpcRelayContext& relays_;
  grpc::GenericCallbackServerContext& call_;
  const MethodKind kind_;
  std::shared_ptr<Relay> self_;  // until it is done
  CallTraits traits_;
  std::vector<std::size_t> tried_;
  ByteBuffer request_, first_;
  bool has_begun_ = false;
  bool has_answered_ = false;  // of the reactions of one attempt, one after another
  mutable std::mutex mutex_;
  // Guarded by the mutex:
  std::vector<std::shared_ptr<Attempt>> attempts_;  // all of them: none may go before its last reaction is over
  std::shared_ptr<Attempt> attempt_;                // the last one
  int64_t num_requests_ = 0;                        // messages of the client
  bool message_waits_ = false;                      // in request_
  bool request_ended_ = false;                      // the client sends no more
  bool is_writing_ = false;                         // a message is on its way to the coordinator,
  bool is_sending_request_ = false;                 // which is request_
  bool is_closed_ = false;                          // the coordinator was told that no more comes
  bool is_over_ = false;                            // the coordinator's answer has ended
  bool is_cancelled_ = false;                       // by the client, or the server's end
  bool is_lost_ = false;                            // the coordinator was given up
};

void Attempt::OnReadDone(bool ok) { relay_.on_response(*this, ok); }
void Attempt::OnWriteDone(bool) { relay_.on_sent(); }
void Attempt::OnDone(const grpc::Status& status) { relay_.on_tried(*this, status); }

/// One message to all, one answer.
class RelayToAll final : public ServerReactor, public std::enable_shared_from_this<RelayToAll> {
 public:
  RelayToAll(GrpcRelayContext& relays, grpc::GenericCallbackServerContext& call) : relays_(relays), call_(call) {}

  void begin() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "the call has no message; allowed: one"});
    const std::vector<std::size_t> all = relays_.pool.answering(FrontPort::kGrpc);
    if (all.empty()) return Finish({grpc::StatusCode::UNAVAILABLE, "no coordinator answers"});
    broadcast(relays_.channels, all, {.method = call_.method(), .call = call_, .mark = relays_.mark, .message = request_},
              [this](std::vector<BroadcastAnswer> answers) { choose(std::move(answers)); });
  }

  void OnDone() override { const std::shared_ptr<RelayToAll> last = std::move(self_); }

 private:
  void choose(std::vector<BroadcastAnswer> answers) {
    const auto rank = [&](const BroadcastAnswer& answer) {
      if (!answer.status.ok()) return 0;
      return says_found(call_.method(), answer.message) ? 2 : 1;
    };
    BroadcastAnswer* best = &answers.front();
    for (BroadcastAnswer& answer : answers) {
      if (rank(answer) > rank(*best)) best = &answer;
    }
    if (!best->status.ok()) return Finish(best->status);
    answer_ = best->message;
    StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
  }

  GrpcRelayContext& relays_;
  grpc::GenericCallbackServerContext& call_;
  std::shared_ptr<RelayToAll> self_;  // until it is done
  ByteBuffer request_, answer_;
};

/// Ends a call at once.
class Refusal final : public ServerReactor {
 public:
  void begin(std::shared_ptr<Refusal> self, const grpc::Status& status) {
    self_ = std::move(self);
    Finish(status);
  }
  void OnDone() override { const std::shared_ptr<Refusal> last = std::move(self_); }

 private:
  std::shared_ptr<Refusal> self_;
};

}  // namespace

grpc::ServerGenericBidiReactor* relay_call(GrpcRelayContext& relays, grpc::GenericCallbackServerContext& context) {
  const auto relay = std::make_shared<Relay>(relays, context);
  relay->begin();
  return relay.get();
}

grpc::ServerGenericBidiReactor* relay_to_all(GrpcRelayContext& relays, grpc::GenericCallbackServerContext& context) {
  const auto relay = std::make_shared<RelayToAll>(relays, context);
  relay->begin();
  return relay.get();
}

grpc::ServerGenericBidiReactor* refuse_call(const grpc::Status& status) {
  const auto refusal = std::make_shared<Refusal>();
  refusal->begin(refusal, status);
  return refusal.get();
}

}  // namespace ferry
