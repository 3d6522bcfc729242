#include "runtime/server/front/grpc_channels.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>
#include <utility>

namespace ferry {
namespace {

constexpr int kFirstBackoffMs = 100, kMaxBackoffMs = 1000;  // before a coordinator that was away is called again
constexpr int kKeepAliveMs = 30'000;         // of silence on a connection with calls, until it is asked for a sign
constexpr int kKeepAliveTimeoutMs = 10'000;  // for that

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const ServerLimits& limits,
                                            std::chrono::milliseconds connect) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(connect.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepAliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // whatever the environment says
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);     // who asks again asks somebody else
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(limits.grpc_metadata_bytes));
  arguments.SetMaxReceiveMessageSize(static_cast<int>(limits.grpc_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(limits.grpc_message_bytes));
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

/// What gRPC makes itself, for each connection anew.
bool is_of_connection(std::string_view name) {
  return name.starts_with(":") || name.starts_with("grpc-") || name == "user-agent" || name == "te" || name == "content-type" ||
         name == "host";
}

/// One call of a broadcast.
struct Ask {
  grpc::ClientContext context;
  BroadcastAnswer answer;
};

struct Broadcast {
  std::vector<std::unique_ptr<Ask>> asks;
  grpc::ByteBuffer message;
  std::atomic<std::size_t> num_left{0};
  std::function<void(std::vector<BroadcastAnswer> answers)> on_done;

  void tell() {
    std::vector<BroadcastAnswer> answers;
    for (const auto& ask : asks) answers.push_back(std::move(ask->answer));
    on_done(std::move(answers));
  }
};

}  // namespace

GrpcChannels::GrpcChannels(const CoordinatorPool& pool, const ServerLimits& limits, const FrontTimes& times)
    : broadcast_time_(times.broadcast) {
  for (std::size_t i = 0; i < pool.size(); ++i) {
    const std::string& address = pool.address(i).grpc;
    channels_.push_back(address.empty() ? nullptr : make_channel(address, limits, times.grpc_connect));
    stubs_.push_back(channels_.back() == nullptr ? nullptr : std::make_unique<grpc::GenericStub>(channels_.back()));
  }
}

bool GrpcChannels::is_connected(std::size_t coordinator) const {
  return channels_[coordinator]->GetState(false) == GRPC_CHANNEL_READY;
}

void copy_call(const grpc::CallbackServerContext& from, const FrontMark& mark, grpc::ClientContext& to) {
  to.set_deadline(from.deadline());
  to.AddMetadata(FrontMark::kName, mark.value());
  for (const auto& [name, value] : from.client_metadata()) {
    if (!is_of_connection({name.data(), name.size()}))
      to.AddMetadata(std::string(name.data(), name.size()), std::string(value.data(), value.size()));
  }
}

void broadcast(GrpcChannels& channels, const std::vector<std::size_t>& coordinators, const BroadcastQuestion& question,
               std::function<void(std::vector<BroadcastAnswer> answers)> on_done) {
  const auto all = std::make_shared<Broadcast>();
  all->message = question.message;
  all->num_left = coordinators.size();
  all->on_done = std::move(on_done);
  const auto latest = std::chrono::system_clock::now() + channels.broadcast_time();
  for (const std::size_t coordinator : coordinators) {
    all->asks.push_back(std::make_unique<Ask>());
    Ask& ask = *all->asks.back();
    ask.answer.coordinator = coordinator;
    copy_call(question.call, question.mark, ask.context);
    ask.context.set_deadline(std::min(question.call.deadline(), latest));
  }
  for (const auto& ask : all->asks) {  // all of them are there before the first is answered
    const auto done = [all, &ask = *ask](const grpc::Status& status) {
      ask.answer.status = status;
      if (--all->num_left == 0) all->tell();
    };
    channels.stub(ask->answer.coordinator)
        .UnaryCall(&ask->context, question.method, grpc::StubOptions(), &all->message, &ask->answer.message, done);
  }
}

}  // namespace ferry
