#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ferry/v1/inference.grpc.pb.h"
#include "runtime/server/front/front.h"
#include "runtime/server/front/grpc_proxy.h"
#include "runtime/server/grpc_server.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/runtime/server/front/fake_coordinator.h"
#include "vllm/inference.grpc.pb.h"

// A front's gRPC port before gRPC servers of coordinators, whose engines do what the test says.

namespace ferry {
namespace {

using grpc::StatusCode;
using test::eventually_after_looks;
using test::FakeEngineClient;
using test::kNeverLost;
using test::kPatientTimes;
using test::last_event;
using test::some_tokens;

/// Both ports of a coordinator.
struct FakeBackend {
  explicit FakeBackend(const Access& access = {}) { start(access); }
  void start(const Access& access) {
    const GrpcServerOptions options{.address = port.address(), .limits = test::patient_limits(), .access = access};
    server = std::make_unique<GrpcServer>(options, engine);
  }
  CoordinatorAddress address() const { return {.http = http.address(), .grpc = port.address()}; }

  const test::ReservedPort port;
  FakeEngineClient engine;
  test::FakeCoordinator http{test::answer_ok};
  std::unique_ptr<GrpcServer> server;
};

struct FrontAndStub {
  explicit FrontAndStub(std::vector<CoordinatorAddress> coordinators, const Access& access = {}, ServerLimits limits = {}) {
    const FrontOptions options{.coordinators = std::move(coordinators),
                               .http_address = "127.0.0.1:0",
                               .grpc_address = "127.0.0.1:0",
                               .drain_timeout_s = test::kNoLimitSeconds,
                               .lost_after_s = kNeverLost,
                               .access = {},
                               .limits = test::patient_limits(limits)};
    front = std::make_unique<Front>(options, access, kPatientTimes, clock);
    if (front->grpc_address().empty()) return;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel = grpc::CreateCustomChannel(front->grpc_address(), grpc::InsecureChannelCredentials(), arguments);
    stub = v1::Inference::NewStub(channel);
  }
  ManualClock clock;
  std::unique_ptr<Front> front;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> stub;
};

std::unique_ptr<grpc::ClientContext> context_of(std::chrono::milliseconds limit = kTestLimit) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + limit);
  return context;
}

v1::GenerateRequest request_of(const std::string& id, const std::string& text = "abc") {
  v1::GenerateRequest request;
  request.set_request_id(id);
  request.set_text(text);
  return request;
}

/// A Generate call that is read by hand.
struct Call {
  Call(v1::Inference::Stub& stub, const v1::GenerateRequest& request, std::unique_ptr<grpc::ClientContext> its = context_of())
      : context(std::move(its)), reader(stub.Generate(context.get(), request)) {}
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  v1::GenerateResponse response;
};

TEST(GrpcProxy, PassesAStreamAsItComes) {
  FakeBackend backend;
  FrontAndStub front({backend.address()});
  Call call(*front.stub, request_of("r"));
  EXPECT_EQ(backend.engine.wait_for_request("r").prompt, (std::vector<TokenId>{'a', 'b', 'c'}));
  backend.engine.send("r", some_tokens({1, 2}, "one"));
  ASSERT_TRUE(call.reader->Read(&call.response));
  EXPECT_EQ(call.response.text(), "one");
  backend.engine.send("r", last_event(FinishReason::kStop));
  ASSERT_TRUE(call.reader->Read(&call.response));
  EXPECT_TRUE(call.response.has_completion());
  EXPECT_FALSE(call.reader->Read(&call.response));
  EXPECT_TRUE(call.reader->Finish().ok());
}

TEST(GrpcProxy, PassesUnaryCallsAndErrors) {
  FakeBackend backend;
  FrontAndStub front({backend.address()});
  v1::GetModelInfoResponse info;
  EXPECT_TRUE(front.stub->GetModelInfo(context_of().get(), {}, &info).ok());
  EXPECT_EQ(info.vocab_size(), 1009);
  Call bad(*front.stub, v1::GenerateRequest());
  EXPECT_FALSE(bad.reader->Read(&bad.response));
  const grpc::Status status = bad.reader->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message(), "");
  backend.engine.refuse(Error(ErrorCode::kResourceExhausted, "the queue is full"));
  Call full(*front.stub, request_of("r"));
  EXPECT_FALSE(full.reader->Read(&full.response));
  EXPECT_EQ(full.reader->Finish().error_message(), "the queue is full");
}

TEST(GrpcProxy, UnknownMethodsAreTheCoordinatorsToRefuse) {
  FakeBackend backend;
  FrontAndStub front({backend.address()});
  grpc::GenericStub stub(front.channel);
  const auto status_of = [&](const std::string& method) {
    const auto context = context_of();
    const grpc::Slice nothing("");
    const grpc::ByteBuffer request(&nothing, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(context.get(), method, {}, &request, &response, [&](const grpc::Status& s) { done.set_value(s); });
    return done.get_future().get().error_code();
  };
  EXPECT_EQ(status_of("/no.such.Service/Method"), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status_of("/ferry.v1.Profile/Start"), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status_of("/vllm.grpc.engine.VllmEngine/HealthCheck"), StatusCode::OK);
  EXPECT_EQ(status_of("/ferry.v1.Cluster/GetCluster"), StatusCode::OK);
}

TEST(GrpcProxy, AClientThatCancelsEndsTheRequest) {
  FakeBackend backend;
  FrontAndStub front({backend.address()});
  Call call(*front.stub, request_of("r"));
  backend.engine.wait_for_request("r");
  call.context->TryCancel();
  EXPECT_TRUE(backend.engine.wait_for_abort("r"));
  EXPECT_EQ(call.reader->Finish().error_code(), StatusCode::CANCELLED);
}

TEST(GrpcProxy, DeadlinesPass) {
  FakeBackend backend;
  FrontAndStub front({backend.address()});
  Call far(*front.stub, request_of("far"), context_of(std::chrono::hours(2)));
  const auto deadline = backend.engine.wait_for_request("far").deadline;
  ASSERT_TRUE(deadline);
  const auto left = *deadline - std::chrono::steady_clock::now();
  EXPECT_GT(left, std::chrono::hours(1)) << "the client's, less the time that the call took";
  EXPECT_LE(left, std::chrono::hours(2) + std::chrono::minutes(1));
  backend.engine.send("far", last_event(FinishReason::kStop));
  while (far.reader->Read(&far.response)) continue;
  EXPECT_TRUE(far.reader->Finish().ok());
  Call near(*front.stub, request_of("near"), context_of(std::chrono::milliseconds(200)));
  EXPECT_FALSE(near.reader->Read(&near.response));
  EXPECT_EQ(near.reader->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
  // A machine that is busy may not have brought the request to the engine by then, and then it need not be aborted.
  EXPECT_TRUE(!backend.engine.has_seen("near") || backend.engine.wait_for_abort("near"));
}

TEST(GrpcProxy, SessionsAndPromptsStayWhereTheyWere) {
  FakeBackend a, b;
  FrontAndStub front({a.address(), b.address()});
  const std::string prompt(1000, 'p');
  const auto ends_at = [&](FakeBackend& backend, const v1::GenerateRequest& request, const std::string& session) {
    auto context = context_of();
    if (!session.empty()) context->AddMetadata("x-session-id", session);
    Call call(*front.stub, request, std::move(context));
    backend.engine.wait_for_request(request.request_id());
    backend.engine.send(request.request_id(), last_event(FinishReason::kStop));
    while (call.reader->Read(&call.response)) {
    }
    return call.reader->Finish().ok();
  };
  EXPECT_TRUE(ends_at(a, request_of("1"), "s"));
  EXPECT_TRUE(ends_at(a, request_of("2"), "s"));
  EXPECT_TRUE(ends_at(b, request_of("3", prompt), ""));
  EXPECT_TRUE(ends_at(b, request_of("4", prompt + "more"), ""));
  EXPECT_TRUE(ends_at(a, request_of("5", prompt), "s"));
}

TEST(GrpcProxy, AbortGoesToAllAndFindsTheRequest) {
  FakeBackend a, b;
  FrontAndStub front({a.address(), b.address()});
  const Call one(*front.stub, request_of("one"));
  a.engine.wait_for_request("one");  // before the other call, or that may be the first at the front
  const Call two(*front.stub, request_of("two"));
  b.engine.wait_for_request("two");
  v1::AbortRequest request;
  request.set_request_id("two");
  v1::AbortResponse response;
  EXPECT_TRUE(front.stub->Abort(context_of().get(), request, &response).ok());
  EXPECT_TRUE(response.found());
  EXPECT_TRUE(b.engine.wait_for_abort("two"));
  request.set_request_id("nobody's");
  EXPECT_TRUE(front.stub->Abort(context_of().get(), request, &response).ok());
  EXPECT_FALSE(response.found());
  const auto control = ::vllm::Control::NewStub(front.channel);
  ::vllm::AbortRequest both;
  both.add_request_ids("one");
  ::vllm::AbortResponse nothing;
  EXPECT_TRUE(control->Abort(context_of().get(), both, &nothing).ok());
  EXPECT_TRUE(a.engine.wait_for_abort("one"));
  one.context->TryCancel();
  two.context->TryCancel();
  one.reader->Finish();
  two.reader->Finish();
}

TEST(GrpcProxy, WhatOneCannotTakeAnotherIsAskedFor) {
  FakeBackend draining, ready;
  draining.engine.refuse(Error(ErrorCode::kUnavailable, "the server drains"));
  FrontAndStub front({draining.address(), ready.address()});
  Call call(*front.stub, request_of("r"));
  ready.engine.wait_for_request("r");
  ready.engine.send("r", last_event(FinishReason::kStop));
  ASSERT_TRUE(call.reader->Read(&call.response));
  EXPECT_FALSE(call.reader->Read(&call.response));
  EXPECT_TRUE(call.reader->Finish().ok());
  ready.engine.refuse(Error(ErrorCode::kUnavailable, "this one, too"));
  Call none(*front.stub, request_of("r"));
  EXPECT_FALSE(none.reader->Read(&none.response));
  const grpc::Status status = none.reader->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(status.error_message() == "the server drains" || status.error_message() == "this one, too")
      << status.error_message();
}

TEST(GrpcProxy, WhoeverIsGoneIsPassedOverAndTakenBack) {
  FakeBackend a, b;
  FrontAndStub front({a.address(), b.address()});
  a.server.reset();  // its HTTP port still says that all is well
  for (int i = 0; i < 3; ++i) {
    v1::GetModelInfoResponse info;
    EXPECT_TRUE(front.stub->GetModelInfo(context_of().get(), {}, &info).ok()) << i;
  }
  a.start({});
  b.server.reset();
  const auto is_answered = [&] {
    v1::GetModelInfoResponse info;
    return front.stub->GetModelInfo(context_of().get(), {}, &info).ok();
  };
  eventually_after_looks(front.clock, is_answered, "the first one to be taken back");
}

TEST(GrpcProxy, ACallThatHasBegunEndsWithItsCoordinator) {
  FakeBackend a, b;
  FrontAndStub front({a.address(), b.address()});
  Call call(*front.stub, request_of("r"));
  a.engine.wait_for_request("r");
  a.engine.send("r", some_tokens({1}, "one"));
  ASSERT_TRUE(call.reader->Read(&call.response));
  a.server.reset();
  EXPECT_FALSE(call.reader->Read(&call.response));
  EXPECT_FALSE(call.reader->Finish().ok());
}

TEST(GrpcProxy, CallsThatAreGivenUpEnd) {
  FakeBackend hung, other;
  CoordinatorPool pool({hung.address(), other.address()});
  for (std::size_t i = 0; i < 2; ++i) pool.set_state(i, CoordinatorState::kServing, "");
  const FrontMark mark;
  const Access access;
  GrpcProxy proxy("127.0.0.1:0", test::patient_limits(), access, pool, mark, kPatientTimes);
  const auto stub = v1::Inference::NewStub(grpc::CreateChannel(proxy.address(), grpc::InsecureChannelCredentials()));
  Call begun(*stub, request_of("begun"));
  hung.engine.wait_for_request("begun");
  hung.engine.send("begun", some_tokens({1}, "one"));
  ASSERT_TRUE(begun.reader->Read(&begun.response));
  pool.set_state(0, CoordinatorState::kDown, "it did not answer in time");
  pool.give_up_calls(0);
  EXPECT_FALSE(begun.reader->Read(&begun.response));
  const grpc::Status status = begun.reader->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("was lost: it does not answer any more"), std::string::npos) << status.error_message();
  Call next(*stub, request_of("next"));
  other.engine.wait_for_request("next");
  next.context->TryCancel();
  next.reader->Finish();
}

TEST(GrpcProxy, KeysAreAskedForAndPassedOn) {
  Access access;
  access.keys = ApiKeys(std::vector<std::string>{"key-of-anna"});
  FakeBackend backend(access);
  FrontAndStub with({backend.address()}, access), without({backend.address()});
  v1::GetLoadResponse load;
  for (FrontAndStub* front : {&with, &without}) {
    EXPECT_EQ(front->stub->GetLoad(context_of().get(), {}, &load).error_code(), StatusCode::UNAUTHENTICATED);
    const auto context = context_of();
    context->AddMetadata("authorization", "Bearer key-of-anna");
    EXPECT_TRUE(front->stub->GetLoad(context.get(), {}, &load).ok());
  }
}

TEST(GrpcProxy, MessagesBeyondTheBoundAreNotPassed) {
  FakeBackend backend;
  ServerLimits limits;
  limits.grpc_message_bytes = 10'000;
  FrontAndStub front({backend.address()}, {}, limits);
  Call call(*front.stub, request_of("r", std::string(20'000, 'x')));
  EXPECT_FALSE(call.reader->Read(&call.response));
  EXPECT_EQ(call.reader->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST(GrpcProxy, StopsWhenCallsHaveEnded) {
  FakeBackend backend;
  FrontAndStub front({backend.address()});
  Call call(*front.stub, request_of("r"));
  backend.engine.wait_for_request("r");
  std::thread stopping([&] { front.front->stop(); });
  v1::GetLoadResponse load;
  eventually([&] { return !front.stub->GetLoad(context_of().get(), {}, &load).ok(); }, "the front to take no more calls");
  backend.engine.send("r", last_event(FinishReason::kStop));
  EXPECT_TRUE(call.reader->Read(&call.response));
  EXPECT_FALSE(call.reader->Read(&call.response));
  EXPECT_TRUE(call.reader->Finish().ok());
  stopping.join();
}

TEST(GrpcProxy, WithoutACoordinatorForItThereIsNoPort) {
  FakeBackend backend;
  const FrontAndStub front({{.http = backend.http.address(), .grpc = ""}});
  EXPECT_EQ(front.front->grpc_address(), "");
}

TEST(GrpcProxy, ACallThatComesBackIsGivenToACoordinatorOrRefused) {
  FakeBackend backend;
  const test::ReservedPort own;
  FrontOptions options{.coordinators = {{.http = backend.http.address(), .grpc = own.address()}},
                       .http_address = "127.0.0.1:0",
                       .grpc_address = own.address(),
                       .drain_timeout_s = test::kNoLimitSeconds,
                       .lost_after_s = kNeverLost,
                       .access = {},
                       .limits = test::patient_limits()};
  for (const bool has_another : {false, true}) {
    test::FakeCoordinator other_http(test::answer_ok);
    if (has_another) options.coordinators.push_back({.http = other_http.address(), .grpc = backend.server->address()});
    ManualClock clock;
    const Front front(options, Access{}, kPatientTimes, clock);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub =
        v1::Inference::NewStub(grpc::CreateCustomChannel(own.address(), grpc::InsecureChannelCredentials(), arguments));
    v1::GetLoadResponse load;
    const grpc::Status status = stub->GetLoad(context_of().get(), v1::GetLoadRequest(), &load);
    EXPECT_EQ(status.error_code(), has_another ? StatusCode::OK : StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_EQ(status.error_message().find("has come back to the front") == std::string::npos, has_another);
  }
}

}  // namespace
}  // namespace ferry
