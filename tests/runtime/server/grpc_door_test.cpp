#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "ferry/v1/inference.grpc.pb.h"
#include "runtime/base/error.h"
#include "runtime/server/grpc_door.h"
#include "runtime/server/grpc_server.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/http2/frames.h"
#include "tests/support/certificate.h"
#include "tests/support/eventually.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/manual_clock.h"

// What strangers can do to the gRPC port, and what they cannot.

namespace ferry {
namespace {

using test::FakeEngineClient;
using test::last_event;
using test::some_tokens;
using Stub = v1::Inference::Stub;

constexpr const char* kKeyA = "key-of-anna-1";
constexpr const char* kKeyB = "key-of-bob-22";
constexpr int kMaxWaitingPrompts = 5 + 11;  // that run and wait of FakeEngineClient's load

/// A connection of its own, whatever others there are.
std::shared_ptr<grpc::Channel> connect_to(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials = grpc::InsecureChannelCredentials()) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

std::unique_ptr<grpc::ClientContext> context_of() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kTestLimit);
  return context;
}

/// Of a call that waits until it is connected, however often that fails.
std::unique_ptr<grpc::ClientContext> patient_context() {
  auto context = context_of();
  context->set_wait_for_ready(true);
  return context;
}

grpc::Status get_load(Stub& stub, grpc::ClientContext& context) {
  v1::GetLoadResponse response;
  return stub.GetLoad(&context, {}, &response);
}

grpc::Status get_load(Stub& stub) { return get_load(stub, *context_of()); }

/// Calls `method` with an empty message; `answer` gets the raw one.
grpc::Status call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, std::string* answer = nullptr) {
  grpc::GenericStub stub(channel);
  const auto context = context_of();
  const grpc::Slice nothing("");
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(context.get(), method, {}, &request, &response, [&](grpc::Status status) { done.set_value(status); });
  const grpc::Status status = done.get_future().get();
  grpc::Slice slice;
  if (answer != nullptr && status.ok() && response.DumpToSingleSlice(&slice).ok())
    answer->assign(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return status;
}

v1::GenerateRequest text_request(const std::string& text, const std::string& id = "") {
  v1::GenerateRequest request;
  request.set_text(text);
  request.set_request_id(id);
  return request;
}

/// A Generate call that is under way.
struct Call {
  Call(Stub& stub, const v1::GenerateRequest& request, const std::string& key = "",
       std::unique_ptr<grpc::ClientContext> its_context = context_of())
      : context(std::move(its_context)) {
    if (!key.empty()) context->AddMetadata("x-api-key", key);
    stream = stub.Generate(context.get(), request);
  }
  grpc::Status finish() {
    v1::GenerateResponse response;
    while (stream->Read(&response)) {
      num_tokens += response.token_ids_size();
      ++num_messages;
    }
    return stream->Finish();
  }

  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> stream;
  int num_tokens = 0, num_messages = 0;
};

/// What calls end with. A thread reads each: one that nobody reads while its deadline passes has ended by that for its client,
/// whatever the server had said before.
class Endings {
 public:
  explicit Endings(std::vector<std::unique_ptr<Call>>& calls) {
    for (const std::unique_ptr<Call>& one : calls) readers_.emplace_back([this, call = one.get()] { add(call->finish()); });
  }
  ~Endings() { join(); }
  Endings(const Endings&) = delete;
  Endings& operator=(const Endings&) = delete;

  int count(grpc::StatusCode code) {
    const std::scoped_lock lock(mutex_);
    return static_cast<int>(std::ranges::count(codes_, code));
  }
  /// Whether so many end with it in time.
  bool wait_for(grpc::StatusCode code, int least) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTestLimit, [&] { return std::ranges::count(codes_, code) >= least; });
  }
  void join() {
    for (std::thread& reader : readers_) reader.join();
    readers_.clear();
  }

 private:
  void add(const grpc::Status& status) {
    const std::scoped_lock lock(mutex_);
    codes_.push_back(status.error_code());
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<grpc::StatusCode> codes_;
  std::vector<std::thread> readers_;
};

class GrpcDoorTest : public testing::Test {
 protected:
  void start() {
    options_.address = "127.0.0.1:0";
    server_.emplace(options_, engine_, nullptr, clock_);
    channel_ = connect_to(server_->address());
    stub_ = v1::Inference::NewStub(channel_);
  }
  grpc::Status generate(const v1::GenerateRequest& request) { return Call(*stub_, request).finish(); }
  bool abort(Stub& stub, const std::string& id, const std::string& key = "") {
    v1::AbortRequest request;
    v1::AbortResponse response;
    request.set_request_id(id);
    const auto context = context_of();
    if (!key.empty()) context->AddMetadata("authorization", "Bearer " + key);
    const grpc::Status status = stub.Abort(context.get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.found();
  }
  void wait_for_endless(int count) {
    eventually([&] { return engine_.num_endless() >= count; }, std::to_string(count) + " prompts to be begun",
               [&] { return std::to_string(engine_.num_endless()) + " have begun"; });
    EXPECT_EQ(engine_.num_endless(), count);
  }

  FakeEngineClient engine_;
  ManualClock clock_;
  GrpcServerOptions options_;
  std::optional<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
};

/// As while a model is being loaded: the port is taken, callers hear at once that nobody serves, and later are served.
TEST_F(GrpcDoorTest, DoorThatIsNotOpenRefusesCallers) {
  auto door = std::make_unique<GrpcDoor>("127.0.0.1:0", ServerLimits{});
  door->refuse_until_open();
  const std::string address = door->address();
  EXPECT_THROW(GrpcDoor(address, ServerLimits{}), Error) << "the port is in use";
  channel_ = connect_to(address);
  stub_ = v1::Inference::NewStub(channel_);
  EXPECT_EQ(get_load(*stub_).error_code(), grpc::StatusCode::UNAVAILABLE);
  GrpcServer server(std::move(door), {}, engine_);
  EXPECT_EQ(server.address(), address);
  EXPECT_TRUE(get_load(*stub_, *patient_context()).ok());
  server.shutdown(std::chrono::milliseconds(0));
}

TEST_F(GrpcDoorTest, PromptsThatTakeLongHoldNobodyUp) {
  start();
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 2 + kMaxWaitingPrompts; ++i) {
    calls.push_back(std::make_unique<Call>(*stub_, text_request(FakeEngineClient::kEndlessText)));
    if (i == 1) wait_for_endless(2);  // or the queue would have to hold these two as well
  }
  EXPECT_TRUE(get_load(*stub_).ok());
  EXPECT_TRUE(call(channel_, "/grpc.health.v1.Health/Check").ok());
  for (auto& one : calls) one->context->TryCancel();
  for (auto& one : calls) EXPECT_EQ(one->finish().error_code(), grpc::StatusCode::CANCELLED);
  std::thread engine([&] {
    engine_.wait_for_request("after");
    engine_.send("after", last_event(FinishReason::kStop));
  });
  // A client takes its cancelled calls for ended before the server has heard of them and their places are free.
  grpc::Status status;
  const auto has_place = [&] {
    status = generate(text_request("hi", "after"));
    return status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED;
  };
  eventually(has_place, "a place in the queue");
  EXPECT_TRUE(status.ok()) << "the threads are not free again: " << status.error_message();
  engine.join();
}

TEST_F(GrpcDoorTest, ThePromptQueueIsBounded) {
  start();
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 2 + kMaxWaitingPrompts + 30; ++i)
    calls.push_back(std::make_unique<Call>(*stub_, text_request(FakeEngineClient::kEndlessText)));
  Endings endings(calls);
  EXPECT_TRUE(endings.wait_for(grpc::StatusCode::RESOURCE_EXHAUSTED, 30)) << "there is no room for them";
  wait_for_endless(2);
  for (auto& one : calls) one->context->TryCancel();
  endings.join();
  const int num_exhausted = endings.count(grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_LE(num_exhausted, 30 + 2) << "the two that are made may have been among those that waited when others came";
  EXPECT_EQ(num_exhausted + endings.count(grpc::StatusCode::CANCELLED), 2 + kMaxWaitingPrompts + 30);
}

TEST_F(GrpcDoorTest, OpenCallsAreCountedByTheMemoryOfTheirMessages) {
  options_.limits.grpc_memory_bytes = 64 << 20;  // gRPC takes its time to receive what comes near it
  start();
  v1::GenerateRequest request = text_request(FakeEngineClient::kEndlessText);  // and 400 kB that take ten million bytes
  for (int i = 0; i < 200'000; ++i) request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(15, "");
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(std::make_unique<Call>(*stub_, request));
  Endings endings(calls);
  EXPECT_TRUE(endings.wait_for(grpc::StatusCode::RESOURCE_EXHAUSTED, 3)) << "by their bytes on the wire all would have room";
  wait_for_endless(2);
  for (auto& one : calls) one->context->TryCancel();
}

TEST_F(GrpcDoorTest, ACallsDeadlineEndsTheMakingOfItsPrompt) {
  start();
  Call call(*stub_, text_request(FakeEngineClient::kEndlessText));
  wait_for_endless(1);
  clock_.advance(2 * kTestLimit);
  const grpc::Status status = call.finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "the call's deadline passed while its prompt was made");
}

TEST_F(GrpcDoorTest, ACallsDeadlineEndsItsWaitForAThread) {
  start();
  const v1::GenerateRequest endless = text_request(FakeEngineClient::kEndlessText);
  std::vector<std::unique_ptr<Call>> calls, waiting;
  for (int i = 0; i < 2; ++i)
    calls.push_back(std::make_unique<Call>(*stub_, endless, "", std::make_unique<grpc::ClientContext>()));
  wait_for_endless(2);
  for (int i = 0; i < kMaxWaitingPrompts + 1; ++i) waiting.push_back(std::make_unique<Call>(*stub_, endless));
  Endings endings(waiting);
  ASSERT_TRUE(endings.wait_for(grpc::StatusCode::RESOURCE_EXHAUSTED, 1)) << "all others wait for a thread";
  clock_.advance(2 * kTestLimit);
  for (auto& one : calls) one->context->TryCancel();
  endings.join();
  EXPECT_EQ(endings.count(grpc::StatusCode::DEADLINE_EXCEEDED), kMaxWaitingPrompts);
  EXPECT_EQ(engine_.num_endless(), 2) << "a prompt was made for a call whose deadline had passed";
}

TEST_F(GrpcDoorTest, WhatIsTooLargeIsRefusedByName) {
  options_.limits.chat_messages = 3;
  options_.limits.stop_strings = 2;
  options_.limits.stop_bytes = 10;
  start();
  const auto refuse = [&](const v1::GenerateRequest& request, const std::string& part) {
    const grpc::Status status = generate(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_NE(status.error_message().find(part), std::string::npos) << status.error_message();
  };
  refuse(text_request(std::string(300'001, 'a')), "text has 300001 bytes; allowed: at most 300000");
  v1::GenerateRequest request;
  for (int i = 0; i < 4; ++i) request.mutable_chat()->add_messages()->set_role("user");
  refuse(request, "chat has 4 messages; allowed: at most 3");
  request.mutable_chat()->mutable_messages()->RemoveLast();
  for (v1::ChatMessage& message : *request.mutable_chat()->mutable_messages()) message.set_content(std::string(100'000, 'a'));
  refuse(request, "chat has 300012 bytes");
  request = text_request("hi");
  request.mutable_sampling()->add_stop("0123456789a");
  refuse(request, "stop[0] has 11 bytes; allowed: at most 10");
  for (int i = 0; i < 2; ++i) request.mutable_sampling()->add_stop("x");
  refuse(request, "stop has 3 strings; allowed: at most 2");
  refuse(text_request("hi", "a b"), "value 32 at position 1");
  refuse(text_request("hi", "a\n"), "value 10 at position 1");
  EXPECT_EQ(generate(text_request(std::string(2'000'000, 'a'))).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << "it need not even be received";
}

TEST_F(GrpcDoorTest, CompressedMessagesAreRefused) {
  start();
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const auto context = context_of();
    context->set_compression_algorithm(algorithm);
    const auto stream = stub_->Generate(context.get(), text_request(std::string(100'000, 'a')));
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
    EXPECT_NE(status.error_message().find("is disabled"), std::string::npos) << status.error_message();
  }
  EXPECT_TRUE(get_load(*stub_).ok());
}

TEST_F(GrpcDoorTest, MetadataIsBounded) {
  start();
  const auto large = context_of();
  large->AddMetadata("x-large", std::string(100'000, 'a'));
  EXPECT_FALSE(get_load(*stub_, *large).ok());
  const auto many = context_of();
  for (int i = 0; i < 3000; ++i) many->AddMetadata("x-" + std::to_string(i), "a");
  EXPECT_FALSE(get_load(*stub_, *many).ok());
  std::unique_ptr<Stub> next = v1::Inference::NewStub(connect_to(server_->address()));  // the other connection may be closed
  EXPECT_TRUE(get_load(*next).ok());
  const auto over = context_of();
  over->AddMetadata("x-over", std::string(17'000, '|'));  // 15 bits each on the wire
  EXPECT_EQ(get_load(*next, *over).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

/// Whose memory gRPC's library does not bound.
TEST_F(GrpcDoorTest, AnEndlessBlockOfHeadersEndsItsConnection) {
  options_.access.keys = ApiKeys({kKeyA});
  start();
  test::RawClient stranger(server_->address());
  stranger.send(test::greeting());
  stranger.send(test::frame(test::kHeadersFrame, test::kNoFlags, ""));
  const std::string entries(1000, '\x84');  // each one is ":path: /"
  int64_t num_bytes = 0;
  while (stranger.send(test::frame(test::kContinuationFrame, test::kNoFlags, entries))) num_bytes += 1000;
  EXPECT_LT(num_bytes, 64 << 20) << "what the sockets hold may leave, and no more";
  const auto context = context_of();
  context->AddMetadata("x-api-key", kKeyA);
  EXPECT_TRUE(get_load(*stub_, *context).ok());
}

TEST_F(GrpcDoorTest, ARequestIsItsConnectionsOwn) {
  start();
  Call call(*stub_, text_request("hi", "r1"));
  engine_.wait_for_request("r1");
  const std::unique_ptr<Stub> stranger = v1::Inference::NewStub(connect_to(server_->address()));
  EXPECT_FALSE(abort(*stranger, "r1"));
  EXPECT_TRUE(abort(*stub_, "r1"));
  engine_.send("r1", last_event(FinishReason::kAborted));
  EXPECT_EQ(call.finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcDoorTest, WithKeysARequestIsItsKeysOwn) {
  options_.access.keys = ApiKeys({kKeyA, kKeyB});
  start();
  Call call(*stub_, text_request("hi", "r1"), kKeyA);
  engine_.wait_for_request("r1");
  EXPECT_FALSE(abort(*stub_, "r1", kKeyB)) << "the same connection, another key";
  const std::unique_ptr<Stub> elsewhere = v1::Inference::NewStub(connect_to(server_->address()));
  EXPECT_TRUE(abort(*elsewhere, "r1", kKeyA));
  engine_.send("r1", last_event(FinishReason::kAborted));
  EXPECT_EQ(call.finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcDoorTest, WithKeysOnlyHealthIsOpen) {
  options_.access.keys = ApiKeys({kKeyA, kKeyB});
  start();
  for (const char* method : {"Generate", "GetModelInfo", "GetLoad", "Abort"}) {
    EXPECT_EQ(call(channel_, std::string("/ferry.v1.Inference/") + method).error_code(), grpc::StatusCode::UNAUTHENTICATED)
        << method;
  }
  for (const char* method : {"Cluster/GetCluster", "Experts/GetPlacement", "Experts/SetPlacement", "Experts/GetLoad"})
    EXPECT_EQ(call(channel_, std::string("/ferry.v1.") + method).error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
  EXPECT_EQ(Call(*stub_, text_request("hi")).finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(call(channel_, "/grpc.health.v1.Health/Check").ok());
  EXPECT_EQ(call(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  const auto load_with = [&](const std::string& name, const std::string& value) {
    const auto context = context_of();
    context->AddMetadata(name, value);
    return get_load(*stub_, *context).error_code();
  };
  EXPECT_EQ(load_with("x-api-key", kKeyB), grpc::StatusCode::OK);
  EXPECT_EQ(load_with("authorization", std::string("Bearer ") + kKeyA), grpc::StatusCode::OK);
  EXPECT_EQ(load_with("authorization", std::string("bearer ") + kKeyA), grpc::StatusCode::OK);
  for (const std::string wrong : {"", "Bearer", "Bearer ", "Bearer wrong-key-1", kKeyA, "Basic key-of-anna-1"})
    EXPECT_EQ(load_with("authorization", wrong), grpc::StatusCode::UNAUTHENTICATED) << wrong;
  EXPECT_EQ(load_with("x-api-key", std::string(kKeyA) + "x"), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(GrpcDoorTest, OfTwoWaysToSayAKeyTheBearerCountsAndNoneMayBeSaidTwice) {
  options_.access.keys = ApiKeys({kKeyA, kKeyB});
  start();
  const auto load_with = [&](const std::vector<std::pair<std::string, std::string>>& metadata) {
    const auto context = context_of();
    for (const auto& [name, value] : metadata) context->AddMetadata(name, value);
    return get_load(*stub_, *context).error_code();
  };
  EXPECT_EQ(load_with({{"authorization", std::string("Bearer ") + kKeyA}, {"x-api-key", "wrong-key-1"}}), grpc::StatusCode::OK);
  EXPECT_EQ(load_with({{"authorization", "Bearer wrong-key-1"}, {"x-api-key", kKeyA}}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(load_with({{"authorization", "Basic wrong-key-1"}, {"x-api-key", kKeyA}}), grpc::StatusCode::OK);
  EXPECT_EQ(load_with({{"x-api-key", kKeyA}, {"x-api-key", "wrong-key-1"}}), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcDoorTest, WithoutKeysThereIsReflection) {
  start();
  for (const char* version : {"v1", "v1alpha"}) {
    const std::string method = "/grpc.reflection." + std::string(version) + ".ServerReflection/ServerReflectionInfo";
    EXPECT_NE(call(channel_, method).error_code(), grpc::StatusCode::UNIMPLEMENTED) << version;
  }
}

TEST_F(GrpcDoorTest, HealthFollowsSetServing) {
  start();
  const std::string serving = "\x08\x01", not_serving = "\x08\x02";  // field 1: the status
  const auto health = [&] {
    std::string answer;
    EXPECT_TRUE(call(channel_, "/grpc.health.v1.Health/Check", &answer).ok());
    return answer;
  };
  EXPECT_EQ(health(), serving);
  server_->set_serving(false);
  EXPECT_EQ(health(), not_serving);
  EXPECT_TRUE(get_load(*stub_).ok()) << "calls are still answered";
  server_->set_serving(true);
  EXPECT_EQ(health(), serving);
}

/// The reader takes nothing while a long answer is made: what waits is merged, in order, and costs the engine no time.
TEST_F(GrpcDoorTest, AnAnswerThatNobodyReadsWaitsInOneMessage) {
  constexpr int kEvents = 200'003;
  start();
  Call call(*stub_, text_request("hi", "r1"));
  engine_.wait_for_request("r1");
  for (int i = 0; i < kEvents; ++i) engine_.send("r1", some_tokens({i}, "token"));
  engine_.send("r1", last_event(FinishReason::kStop));
  EXPECT_TRUE(call.finish().ok());
  EXPECT_EQ(call.num_tokens, kEvents);
  EXPECT_LT(call.num_messages, kEvents / 2);
}

TEST_F(GrpcDoorTest, GoesOnAfterTheProcessHadNoDescriptorsLeft) {
  start();
  EXPECT_TRUE(get_load(*stub_).ok());
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  {
    const test::NoDescriptors none;
    const std::string& address = server_->address();
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
    EXPECT_TRUE(get_load(*stub_).ok()) << "open connections go on";
  }
  const std::unique_ptr<Stub> newcomer = v1::Inference::NewStub(connect_to(server_->address()));
  EXPECT_TRUE(get_load(*newcomer).ok());
  close(client);
}

TEST_F(GrpcDoorTest, IdleConnectionsAreClosedAndMakeRoom) {
  options_.limits.grpc_connections = 1;
  options_.limits.grpc_idle_s = 0.1;
  start();
  EXPECT_TRUE(get_load(*stub_, *patient_context()).ok());
  EXPECT_TRUE(channel_->WaitForStateChange(GRPC_CHANNEL_READY, std::chrono::system_clock::now() + kTestLimit));
  const std::unique_ptr<Stub> newcomer = v1::Inference::NewStub(connect_to(server_->address()));
  EXPECT_TRUE(get_load(*newcomer, *patient_context()).ok());
}

TEST_F(GrpcDoorTest, TlsAndMutualTls) {
  const test::Certificate own = test::make_certificate("localhost"), stranger = test::make_certificate("localhost");
  options_.access.tls = TlsIdentity{.certificate_chain = own.certificate, .private_key = own.key, .client_ca = ""};
  start();
  const auto load_with = [&](const std::string& roots, const test::Certificate& client,
                             std::unique_ptr<grpc::ClientContext> context) {
    grpc::SslCredentialsOptions ssl{
        .pem_root_certs = roots, .pem_private_key = client.key, .pem_cert_chain = client.certificate};
    const std::unique_ptr<Stub> stub = v1::Inference::NewStub(connect_to(server_->address(), grpc::SslCredentials(ssl)));
    return get_load(*stub, *context).ok();
  };
  EXPECT_TRUE(load_with(own.certificate, {}, patient_context()));
  EXPECT_FALSE(load_with(stranger.certificate, {}, context_of())) << "the client does not know this server";
  EXPECT_FALSE(get_load(*stub_).ok()) << "plain text";
  server_.reset();
  options_.access.tls->client_ca = own.certificate;
  start();
  EXPECT_TRUE(load_with(own.certificate, own, patient_context()));
  EXPECT_FALSE(load_with(own.certificate, {}, context_of()));
  EXPECT_FALSE(load_with(own.certificate, stranger, context_of()));
}

}  // namespace
}  // namespace ferry
