#include "runtime/server/bounded_service.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ferry/v1/cluster.grpc.pb.h"
#include "ferry/v1/experts.grpc.pb.h"
#include "ferry/v1/inference.grpc.pb.h"
#include "ferry/v1/profile.grpc.pb.h"
#include "runtime/server/grpc_server.h"
#include "runtime/server/profile_control.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/allocation_count.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_folder.h"
#include "vllm/engine.grpc.pb.h"
#include "vllm/inference.grpc.pb.h"

// Messages that are small until they are parsed.

namespace ferry {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::ServiceDescriptor;
using test::FakeEngineClient;
using test::last_event;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kParts = 600'000;
constexpr const char* kUnknownText = "\x7A";   // a field 15 of text, which no request has; its length follows
constexpr const char* kStoppingText = "\x42";  // Sampling.stop

/// Empty texts, each of which takes 80 bytes once it is parsed.
std::string many_parts(const std::string& tag, int count = kParts) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += tag + std::string(1, '\0');
  return bytes;
}

/// As field `tag` of another message.
std::string within(const std::string& tag, const std::string& bytes) {
  std::string whole = tag;
  std::size_t length = bytes.size();
  for (; length >= 0x80; length >>= 7) whole += static_cast<char>(length | 0x80);
  return whole + static_cast<char>(length) + bytes;
}

/// Every service of Ferry's own and of vLLM's.
std::vector<const ServiceDescriptor*> all_services() {
  return {v1::GenerateRequest::descriptor()->file()->service(0),
          v1::GetClusterRequest::descriptor()->file()->service(0),
          v1::SetPlacementRequest::descriptor()->file()->service(0),
          v1::StartProfileRequest::descriptor()->file()->service(0),
          ::vllm::grpc::engine::GenerateRequest::descriptor()->file()->service(0),
          ::vllm::AbortRequest::descriptor()->file()->service(0),
          ::vllm::AbortRequest::descriptor()->file()->service(1)};
}

class NoCaptures final : public CaptureSource {
 public:
  void start(const TracePlan&) override { throw Error(ErrorCode::kUnavailable, "there are none"); }
  void stop() override { throw Error(ErrorCode::kUnavailable, "there are none"); }
  void save_snapshot() override { throw Error(ErrorCode::kUnavailable, "there are none"); }
  void set_on_capture(std::function<void(Capture)>, std::function<void(const std::string&)>) override {}
};

/// Takes messages as large as pictures.
class SeeingEngineClient final : public FakeEngineClient {
 public:
  SeeingEngineClient() : info_(FakeEngineClient::model_info()) { info_.takes_media = true; }
  const ModelInfo& model_info() const override { return info_; }

 private:
  ModelInfo info_;
};

class BoundedServiceTest : public testing::Test {
 protected:
  void start(EngineClient& engine, const std::vector<std::string>& keys = {}) {
    GrpcServerOptions options{.address = "127.0.0.1:0"};
    options.limits = test::patient_limits();
    if (!keys.empty()) options.access.keys = ApiKeys(keys);
    server_.emplace(options, engine, &profile_);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    stub_ = v1::Inference::NewStub(channel_);
  }

  /// Calls "/SERVICE/METHOD" with `message`, whatever its kind.
  grpc::Status call(const std::string& method, const std::string& message) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTestLimit);
    const grpc::Slice slice(message.data(), message.size(), grpc::Slice::STATIC_SLICE);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, method, {}, &request, &response, [&](const grpc::Status& status) { done.set_value(status); });
    return done.get_future().get();
  }
  static void expect_refused(const grpc::Status& status, const std::string& method) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << method << ": " << status.error_message();
    EXPECT_TRUE(status.error_message().starts_with("the message has ")) << method << ": " << status.error_message();
    EXPECT_NE(status.error_message().find("would take more than"), std::string::npos) << method;
  }
  void expect_load() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTestLimit);
    v1::GetLoadResponse response;
    const grpc::Status status = stub_->GetLoad(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.max_running_requests(), 5);
  }
  grpc::Status generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTestLimit);
    const auto stream = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  }
  /// Sends `request`, which the engine is to get with so many tokens.
  void expect_prompt(v1::GenerateRequest request, std::size_t num_tokens) {
    request.set_request_id("r1");
    std::thread engine([&] {
      EXPECT_EQ(engine_.wait_for_request("r1").prompt.size(), num_tokens);
      engine_.send("r1", last_event(FinishReason::kStop));
    });
    const grpc::Status status = generate(request);
    EXPECT_TRUE(status.ok()) << status.error_message();
    engine.join();
  }

  FakeEngineClient engine_;
  test::TempFolder root_;
  NoCaptures captures_;
  ProfileControl profile_{captures_, root_.path(), false};
  std::optional<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(BoundedServiceTest, EveryMethodRefusesWhatIsLargeOnceParsed) {
  start(engine_, {"key-of-anna-1"});
  const std::string planted = many_parts(kUnknownText);
  int num_methods = 0;
  for (const ServiceDescriptor* service : all_services()) {
    for (int m = 0; m < service->method_count(); ++m, ++num_methods) {
      const std::string method = "/" + service->full_name() + "/" + service->method(m)->name();
      test::take_most_live_bytes();
      const int64_t before = test::num_live_bytes();
      expect_refused(call(method, planted), method);
      EXPECT_LT(test::take_most_live_bytes() - before, kMiB) << method << " has parsed it";
      const grpc::StatusCode code = call(method, "").error_code();
      EXPECT_TRUE(code == grpc::StatusCode::UNAUTHENTICATED || code == grpc::StatusCode::UNIMPLEMENTED ||
                  method.ends_with("HealthCheck"))
          << method << " " << code;
    }
  }
  EXPECT_EQ(num_methods, 4 + 1 + 3 + 4 + 12 + 2 + 1);
}

TEST_F(BoundedServiceTest, KnownPartsCountAndTheNextCallIsAnswered) {
  start(engine_);
  const std::string layers = many_parts("\x12"), stops = within("\x22", many_parts(kStoppingText));
  const std::string ids = many_parts("\x0A");
  const std::map<std::string, std::string> planted = {
      {"/ferry.v1.Experts/SetPlacement", layers},
      {"/ferry.v1.Inference/Generate", stops},
      {"/vllm.grpc.engine.VllmEngine/Abort", ids},
      {"/vllm.grpc.engine.VllmEngine/Generate", within("\x22", many_parts("\x52"))},
      {"/vllm.Inference/Generate", within("\x4A", many_parts("\x22"))},
      {"/vllm.Inference/GenerateStream", within("\x4A", many_parts("\x22"))},
      {"/vllm.Control/Abort", ids},
  };
  for (const auto& [method, message] : planted) {
    test::take_most_live_bytes();
    const int64_t before = test::num_live_bytes();
    expect_refused(call(method, message), method);
    EXPECT_LT(test::take_most_live_bytes() - before, kMiB) << method << " has parsed it";
    expect_load();
    v1::GenerateRequest request;
    request.set_text("hi");
    expect_prompt(request, 2);
  }
}

TEST_F(BoundedServiceTest, AServerForPicturesTakesNoMoreForParts) {
  SeeingEngineClient engine;
  start(engine);
  const std::string planted = many_parts("\x12", 16'000'000);  // 32 MB, of which protobuf makes 1.3 GB
  const auto most_resident = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
  };
  const int64_t before = most_resident();
  test::take_most_live_bytes();
  const int64_t live_before = test::num_live_bytes();
  expect_refused(call("/ferry.v1.Experts/SetPlacement", planted), "SetPlacement");
  expect_refused(call("/ferry.v1.Inference/Generate", planted), "Generate");
  EXPECT_LT(test::take_most_live_bytes() - live_before, 2 * kMiB);
  EXPECT_LT(most_resident() - before, 600 * kMiB) << "messages of 32 MB on their way, and their parts";
  expect_load();
}

TEST_F(BoundedServiceTest, TheLargestRequestsPass) {
  start(engine_);
  v1::GenerateRequest ids;
  for (int i = 0; i < 100'000; ++i) ids.mutable_token_ids()->add_ids(1008);
  for (int i = 0; i < 1009; ++i) ids.mutable_sampling()->add_allowed_token_ids(i);
  for (int i = 0; i < 16; ++i) ids.mutable_sampling()->add_stop(std::string(1024, 'x'));
  for (int i = 0; i < 1009; ++i) (*ids.mutable_sampling()->mutable_logit_bias())[i] = 1;
  for (int i = 0; i < 1024; ++i) {
    v1::TokenIds& word = *ids.mutable_sampling()->add_bad_words();
    for (int k = 0; k < 64; ++k) word.add_ids(k);
  }
  expect_prompt(ids, 100'000);
  v1::GenerateRequest chat;
  for (int i = 0; i < 1024; ++i) {
    v1::ChatMessage& message = *chat.mutable_chat()->add_messages();
    message.set_role("user");
    message.set_content(std::string(280, 'a'));
  }
  expect_prompt(chat, 1 + 1024 * 280);
  v1::SetPlacementRequest placement;
  placement.set_epoch(1);
  for (int l = 0; l < 2; ++l) {
    v1::GetPlacementResponse::Layer& layer = *placement.add_layers();
    for (int r = 0; r < 64; ++r) {
      v1::GetPlacementResponse::RankExperts& held = *layer.add_ranks();
      for (int e = 0; e < 4; ++e) held.add_experts(e);
    }
  }
  grpc::ClientContext context;
  v1::SetPlacementResponse response;
  const grpc::Status status = v1::Experts::NewStub(channel_)->SetPlacement(&context, placement, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(engine_.given().size(), 2U);
}

TEST_F(BoundedServiceTest, WhatIsNoMessageIsAnsweredAsEver) {
  start(engine_);
  EXPECT_EQ(call("/ferry.v1.Inference/Abort", "\x0A\xFF").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(call("/ferry.v1.Inference/Generate", "\x0A\xFF").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(call("/ferry.v1.Experts/SetPlacement", "\x12\xFF").error_code(), grpc::StatusCode::INTERNAL);
  expect_load();
}

/// A layer of two bytes with a rank of a megabyte in it, which protobuf parses before it finds that out.
TEST_F(BoundedServiceTest, APartLongerThanItsWholeIsNoWayAround) {
  start(engine_);
  const std::string hidden = std::string("\x12\x02") + within("\x0A", many_parts(kUnknownText));
  test::take_most_live_bytes();
  const int64_t before = test::num_live_bytes();
  expect_refused(call("/ferry.v1.Experts/SetPlacement", hidden), "SetPlacement");
  EXPECT_LT(test::take_most_live_bytes() - before, kMiB);
}

TEST_F(BoundedServiceTest, RefusedCallsLeaveNothingBehindWhateverElseIsCalled) {
  constexpr int kThreads = 4, kCalls = 30;
  start(engine_);
  const std::string planted = many_parts(kUnknownText);
  const auto call_all = [&] {
    for (int i = 0; i < kCalls; ++i) {
      for (const char* method : {"/ferry.v1.Inference/Generate", "/vllm.Control/Abort", "/ferry.v1.Cluster/GetCluster"})
        expect_refused(call(method, planted), method);
      expect_load();
    }
  };
  call_all();
  const int64_t before = test::num_live_bytes();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(call_all);
    threads.emplace_back([&] {  // callers that are gone before they are refused
      for (int i = 0; i < kCalls; ++i) {
        grpc::ClientContext context;
        v1::GenerateRequest request;
        for (int k = 0; k < kParts; ++k) request.mutable_sampling()->add_stop("");
        const auto stream = stub_->Generate(&context, request);
        for (int turn = 0; turn < i * i; ++turn) std::this_thread::yield();  // the server may be further or not
        context.TryCancel();
        stream->Finish();
      }
    });
  }
  const auto num_left = [&] { return test::num_live_bytes() - before; };
  eventually([&] { return num_left() < kMiB; }, "calls that were cancelled to leave nothing behind",
             [&] { return std::to_string(num_left()) + " bytes are left"; });
}

}  // namespace
}  // namespace ferry
