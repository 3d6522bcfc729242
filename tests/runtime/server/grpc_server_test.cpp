#include "runtime/server/grpc_server.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "ferry/v1/cluster.grpc.pb.h"
#include "ferry/v1/experts.grpc.pb.h"
#include "ferry/v1/inference.grpc.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/server/log/request_log.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/support/allocation_count.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FakeEngineClient;
using test::last_event;
using test::some_tokens;

class GrpcServerTest : public testing::Test {
 protected:
  GrpcServerTest() : server_({"127.0.0.1:0"}, engine_) {
    channel_ = grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials());
    stub_ = v1::Inference::NewStub(channel_);
  }

  /// Sends `request` and reads to the end; `texts` gets one string per message.
  grpc::Status generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTestLimit);
    const auto stream = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    responses_.clear();
    while (stream->Read(&response)) responses_.push_back(response);
    return stream->Finish();
  }
  static v1::GenerateRequest text_request(const std::string& text, const std::string& id) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.set_request_id(id);
    return request;
  }

  FakeEngineClient engine_;
  GrpcServer server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::vector<v1::GenerateResponse> responses_;
};

TEST_F(GrpcServerTest, StreamsTokensAndTheCompletion) {
  std::thread engine([&] {
    engine_.wait_for_request("r1");
    engine_.send("r1", some_tokens({7, 8}, "ab"));
    engine_.send("r1", some_tokens({9}, ""));
    GenerateEvent last = last_event(FinishReason::kLength);
    last.token_ids = {10};
    last.text = "é";
    engine_.send("r1", last);
  });
  const grpc::Status status = generate(text_request("hi", "r1"));
  engine.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  ASSERT_GE(responses_.size(), 1U);
  ASSERT_LE(responses_.size(), 3U) << "events may be merged on the way";
  std::vector<TokenId> ids;
  std::string text;
  for (const v1::GenerateResponse& response : responses_) {
    ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
    text += response.text();
    EXPECT_EQ(response.has_completion(), &response == &responses_.back());
  }
  EXPECT_EQ(ids, (std::vector<TokenId>{7, 8, 9, 10}));
  EXPECT_EQ(text, "abé");
  const v1::Completion& completion = responses_.back().completion();
  EXPECT_EQ(completion.finish_reason(), v1::Completion::FINISH_REASON_LENGTH);
  EXPECT_EQ(completion.prompt_tokens(), 2);
  EXPECT_EQ(completion.completion_tokens(), 4);
  EXPECT_EQ(completion.cached_tokens(), 1);
  EXPECT_EQ(completion.timings().queue_us(), 1);
  EXPECT_EQ(completion.timings().first_token_us(), 2000);
  EXPECT_EQ(completion.timings().total_us(), 3000);
  EXPECT_EQ(completion.request_id(), "r1");
}

TEST_F(GrpcServerTest, AnAnswerThatMayTakeTooMuchIsRefusedBeforeAnythingRuns) {
  ServerLimits limits;
  limits.answer_bytes = 1 << 20;
  GrpcServer server({.address = "127.0.0.1:0", .limits = limits, .access = {}}, engine_);
  stub_ = v1::Inference::NewStub(grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials()));
  v1::GenerateRequest request;
  request.set_request_id("r1");
  request.mutable_sampling()->set_prompt_logprobs(20);
  for (int i = 0; i < 400; ++i) request.mutable_token_ids()->add_ids(7);
  const grpc::Status status = generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("--answer-bytes"), std::string::npos) << status.error_message();
  EXPECT_FALSE(engine_.has_seen("r1"));
  request.mutable_token_ids()->mutable_ids()->Truncate(300);
  std::thread engine([&] {
    engine_.wait_for_request("r1");
    engine_.send("r1", last_event(FinishReason::kLength));
  });
  EXPECT_TRUE(generate(request).ok());
  engine.join();
}

TEST_F(GrpcServerTest, ACallThatFindsNoMemoryFailsAlone) {
  const GenerateEvent large = some_tokens(std::vector<TokenId>(50'000, 7), "");
  std::thread engine([&] {
    engine_.wait_for_request("r1");
    const test::LittleMemory little(100'000);
    engine_.send("r1", large);
    engine_.send("r1", last_event(FinishReason::kAborted));
  });
  const grpc::Status status = generate(text_request("hi", "r1"));
  engine.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_NE(status.error_message().find("out of memory"), std::string::npos) << status.error_message();
  std::thread next([&] {
    engine_.wait_for_request("r2");
    engine_.send("r2", last_event(FinishReason::kLength));
  });
  EXPECT_TRUE(generate(text_request("hi", "r2")).ok());
  next.join();
}

/// A line for each call for tokens, and none for others.
TEST_F(GrpcServerTest, CallsForTokensAreLogged) {
  constexpr const char* kId = "r1\",\"status\":7";
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]), writer(ends[1]);
  RequestLog log(RequestLog::Form::kJson, writer.get());
  GrpcServer logged(
      {.address = "127.0.0.1:0", .limits = {}, .access = {.keys = ApiKeys({"key-of-anna-1"}), .tls = {}}, .log = &log},
      engine_);
  stub_ = v1::Inference::NewStub(grpc::CreateChannel(logged.address(), grpc::InsecureChannelCredentials()));
  const auto generate_as = [&](const char* key, const char* id, std::chrono::nanoseconds limit) {
    grpc::ClientContext context;
    context.AddMetadata("x-api-key", key);
    context.set_deadline(std::chrono::system_clock::now() + limit);
    const auto stream = stub_->Generate(&context, text_request("hi", id));
    for (v1::GenerateResponse response; stream->Read(&response);) {
    }
    return stream->Finish();
  };
  std::thread engine([&] {
    engine_.wait_for_request(kId);
    engine_.send(kId, some_tokens({7, 8}, "ab"));
    engine_.send(kId, last_event(FinishReason::kLength));
  });
  EXPECT_TRUE(generate_as("key-of-anna-1", kId, kTestLimit).ok());
  engine.join();
  EXPECT_EQ(generate_as("another-key", kId, kTestLimit).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext context;
  v1::GetLoadResponse response;
  EXPECT_FALSE(stub_->GetLoad(&context, {}, &response).ok());
  const auto read_line = [&] {
    std::string line;
    for (char next = 0; ::read(reader.get(), &next, 1) == 1 && next != '\n';) line += next;
    return nlohmann::json::parse(line);
  };
  const nlohmann::json first = read_line(), second = read_line();
  EXPECT_EQ(first.at("port"), "grpc");
  EXPECT_EQ(first.at("route"), "/ferry.v1.Inference/Generate");
  EXPECT_EQ(first.at("status"), 0);
  EXPECT_EQ(first.at("id"), kId);
  EXPECT_EQ(first.at("key"), "key 1");
  EXPECT_EQ(first.at("prompt_tokens"), 2);
  EXPECT_EQ(first.at("cached_tokens"), 1);
  EXPECT_EQ(first.at("completion_tokens"), 2);
  EXPECT_EQ(first.at("queue_s"), 1e-6);
  EXPECT_EQ(first.at("first_token_s"), 0.002);
  EXPECT_EQ(second.at("status"), static_cast<int>(grpc::StatusCode::UNAUTHENTICATED));
  EXPECT_TRUE(second.at("key").is_null());
  EXPECT_TRUE(second.at("completion_tokens").is_null());
  grpc::Status late;
  for (seconds limit(1); !engine_.has_seen("late"); limit *= 2) late = generate_as("key-of-anna-1", "late", limit);
  EXPECT_EQ(late.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(read_line().at("status"), static_cast<int>(grpc::StatusCode::DEADLINE_EXCEEDED));
  logged.shutdown(milliseconds(0));
}

TEST_F(GrpcServerTest, TellsLogprobsAndWhatStopped) {
  const TokenLogprobs likely{.chosen = {.id = 7, .logprob = -0.5F, .rank = 1}, .top = {{7, -0.5F, 1}, {9, -1.25F, 2}}};
  const TokenLogprobs lone{.chosen = {.id = 8, .logprob = -2.0F, .rank = 3}, .top = {}};
  std::thread engine([&] {
    engine_.wait_for_request("r1");
    GenerateEvent first = some_tokens({7}, "a");
    first.logprobs = {likely};
    first.prompt_logprobs = {lone, likely};
    engine_.send("r1", first);
    GenerateEvent second = some_tokens({8}, "");
    second.logprobs = {lone};
    engine_.send("r1", second);
    GenerateEvent last = last_event(FinishReason::kStop);
    last.stop = "end";
    last.stop_id = 0;
    engine_.send("r1", last);
  });
  EXPECT_TRUE(generate(text_request("hi", "r1")).ok());
  engine.join();
  v1::GenerateResponse all;
  for (const v1::GenerateResponse& response : responses_) all.MergeFrom(response);
  ASSERT_EQ(all.logprobs_size(), 2);
  EXPECT_EQ(all.logprobs(0).chosen().id(), 7);
  ASSERT_EQ(all.logprobs(0).top_size(), 2);
  EXPECT_EQ(all.logprobs(0).top(1).id(), 9);
  EXPECT_EQ(all.logprobs(0).top(1).logprob(), -1.25F);
  EXPECT_EQ(all.logprobs(0).top(1).rank(), 2);
  EXPECT_EQ(all.logprobs(1).chosen().rank(), 3);
  EXPECT_EQ(all.logprobs(1).top_size(), 0);
  ASSERT_EQ(all.prompt_logprobs_size(), 2);
  EXPECT_EQ(all.prompt_logprobs(0).chosen().id(), 8);
  EXPECT_EQ(all.completion().stop(), "end");
  ASSERT_TRUE(all.completion().has_stop_id());
  EXPECT_EQ(all.completion().stop_id(), 0);
}

TEST_F(GrpcServerTest, ManyEventsAtOnceArriveInOrder) {
  constexpr int kEvents = 5003;
  std::thread engine([&] {
    engine_.wait_for_request("r1");
    for (int i = 0; i < kEvents; ++i) engine_.send("r1", some_tokens({i}, "x"));
    engine_.send("r1", last_event(FinishReason::kStop));
  });
  EXPECT_TRUE(generate(text_request("hi", "r1")).ok());
  engine.join();
  std::vector<TokenId> ids;
  std::string text;
  for (const v1::GenerateResponse& response : responses_) {
    ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
    text += response.text();
    EXPECT_EQ(response.has_completion(), &response == &responses_.back());
  }
  ASSERT_EQ(ids.size(), static_cast<std::size_t>(kEvents));
  for (int i = 0; i < kEvents; ++i) ASSERT_EQ(ids[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(text, std::string(kEvents, 'x'));
}

TEST_F(GrpcServerTest, PassesPromptSamplingAndDeadlineOn) {
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("A");
  request.mutable_chat()->set_thinking(v1::Chat::THINKING_OFF);
  request.mutable_sampling()->set_temperature(0.5F);
  request.mutable_sampling()->set_top_p(0.25F);
  request.mutable_sampling()->set_top_k(7);
  request.mutable_sampling()->set_seed(UINT64_MAX);
  request.mutable_sampling()->set_max_tokens(13);
  request.mutable_sampling()->set_ignore_eos(true);
  request.mutable_sampling()->add_stop_token_ids(17);
  request.mutable_sampling()->add_stop("end");
  request.mutable_sampling()->set_min_p(0.125F);
  request.mutable_sampling()->set_repetition_penalty(1.5F);
  request.mutable_sampling()->set_presence_penalty(-0.5F);
  request.mutable_sampling()->set_frequency_penalty(0.75F);
  (*request.mutable_sampling()->mutable_logit_bias())[33] = -7.0F;
  request.mutable_sampling()->add_allowed_token_ids(5);
  request.mutable_sampling()->add_bad_words()->add_ids(6);
  request.mutable_sampling()->mutable_bad_words(0)->add_ids(7);
  request.mutable_sampling()->set_min_tokens(3);
  request.mutable_sampling()->set_includes_stop(true);
  request.mutable_sampling()->set_logprobs(-1);
  request.mutable_sampling()->set_prompt_logprobs(0);
  request.set_cache_salt("mine");
  Request seen;
  std::thread engine([&] {
    seen = engine_.wait_for_request();
    engine_.send(seen.id, last_event(FinishReason::kStop));
  });
  EXPECT_TRUE(generate(request).ok());
  engine.join();
  EXPECT_FALSE(seen.id.empty());
  EXPECT_EQ(responses_.at(0).completion().request_id(), seen.id);
  EXPECT_EQ(seen.prompt, (std::vector<TokenId>{2, 'A'}));
  EXPECT_EQ(seen.cache_salt, "mine");
  EXPECT_EQ(seen.sampling.temperature, 0.5F);
  EXPECT_EQ(seen.sampling.top_p, 0.25F);
  EXPECT_EQ(seen.sampling.top_k, 7);
  EXPECT_EQ(seen.sampling.seed, UINT64_MAX);
  EXPECT_EQ(seen.sampling.max_tokens, 13);
  EXPECT_TRUE(seen.sampling.ignore_eos);
  EXPECT_EQ(seen.sampling.stop_token_ids, (std::vector<TokenId>{17}));
  EXPECT_EQ(seen.sampling.stop, (std::vector<std::string>{"end"}));
  EXPECT_EQ(seen.sampling.min_p, 0.125F);
  EXPECT_EQ(seen.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(seen.sampling.presence_penalty, -0.5F);
  EXPECT_EQ(seen.sampling.frequency_penalty, 0.75F);
  ASSERT_EQ(seen.sampling.logit_bias.size(), 1U);
  EXPECT_EQ(seen.sampling.logit_bias[0].id, 33);
  EXPECT_EQ(seen.sampling.logit_bias[0].bias, -7.0F);
  EXPECT_EQ(seen.sampling.allowed_token_ids, (std::vector<TokenId>{5}));
  EXPECT_EQ(seen.sampling.bad_words, (std::vector<std::vector<TokenId>>{{6, 7}}));
  EXPECT_EQ(seen.sampling.min_tokens, 3);
  EXPECT_TRUE(seen.sampling.includes_stop);
  EXPECT_EQ(seen.sampling.logprobs, -1);
  EXPECT_EQ(seen.sampling.prompt_logprobs, 0);
  ASSERT_TRUE(seen.deadline.has_value());
  EXPECT_LT(*seen.deadline, std::chrono::steady_clock::now() + kTestLimit + seconds(1));
}

TEST_F(GrpcServerTest, DefaultsAreThoseOfSamplingParams) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(-5);
  grpc::ClientContext context;  // without a deadline
  const auto stream = stub_->Generate(&context, request);
  const Request seen = engine_.wait_for_request();
  engine_.send(seen.id, last_event(FinishReason::kStop));
  v1::GenerateResponse response;
  EXPECT_TRUE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  const SamplingParams defaults;
  EXPECT_EQ(seen.prompt, (std::vector<TokenId>{-5}));
  EXPECT_FALSE(seen.deadline.has_value());
  EXPECT_EQ(seen.sampling.temperature, 0.0F);
  EXPECT_EQ(seen.sampling.top_p, defaults.top_p);
  EXPECT_EQ(seen.sampling.top_k, defaults.top_k);
  EXPECT_EQ(seen.sampling.max_tokens, defaults.max_tokens);
}

TEST_F(GrpcServerTest, BadRequestsAreInvalidArguments) {
  const auto refuse = [&](const v1::GenerateRequest& request, const std::string& part) {
    const grpc::Status status = generate(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_NE(status.error_message().find(part), std::string::npos) << status.error_message();
    EXPECT_TRUE(responses_.empty());
  };
  v1::GenerateRequest request;
  refuse(request, "no input");
  request.mutable_chat();
  refuse(request, "chat.messages");
  request.mutable_chat()->add_messages()->set_role("wizard");
  refuse(request, "wizard");
  request.mutable_chat()->set_thinking(static_cast<v1::Chat::Thinking>(9));
  refuse(request, "thinking is 9");
  refuse(text_request("hi", std::string(129, 'x')), "129 bytes");
}

TEST_F(GrpcServerTest, EveryErrorCodeBecomesTheStatusOfTheSameName) {
  const std::vector<std::pair<ErrorCode, grpc::StatusCode>> codes = {
      {ErrorCode::kCancelled, grpc::StatusCode::CANCELLED},
      {ErrorCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
      {ErrorCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
      {ErrorCode::kNotFound, grpc::StatusCode::NOT_FOUND},
      {ErrorCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {ErrorCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
      {ErrorCode::kAborted, grpc::StatusCode::ABORTED},
      {ErrorCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
      {ErrorCode::kInternal, grpc::StatusCode::INTERNAL},
      {ErrorCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
  };
  for (const auto& [code, expected] : codes) {
    engine_.refuse(Error(code, "because of 17"));
    const grpc::Status status = generate(text_request("hi", "r"));
    EXPECT_EQ(status.error_code(), expected);
    EXPECT_EQ(status.error_message(), "because of 17");
  }
}

TEST_F(GrpcServerTest, AnEngineErrorInMidStreamIsTheStatus) {
  std::thread engine([&] {
    engine_.wait_for_request("r1");
    engine_.send("r1", some_tokens({7}, "a"));
    GenerateEvent last = last_event(FinishReason::kError);
    last.error = Error(ErrorCode::kUnavailable, "rank 2 is gone");
    engine_.send("r1", last);
  });
  const grpc::Status status = generate(text_request("hi", "r1"));
  engine.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "rank 2 is gone");
  EXPECT_EQ(responses_.size(), 1U);
}

TEST_F(GrpcServerTest, CancelAbortsAtOnce) {
  grpc::ClientContext context;
  const auto stream = stub_->Generate(&context, text_request("hi", "r1"));
  engine_.wait_for_request("r1");
  engine_.send("r1", some_tokens({7}, "a"));
  v1::GenerateResponse response;
  EXPECT_TRUE(stream->Read(&response));
  context.TryCancel();
  EXPECT_TRUE(engine_.wait_for_abort("r1"));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  engine_.send("r1", some_tokens({8}, "late"));  // the engine may be a step behind: must be harmless
  engine_.send("r1", last_event(FinishReason::kAborted));
}

TEST_F(GrpcServerTest, CancelsThatRaceWithTokensAndWithTheEndAreHarmless) {
  constexpr int kCalls = 151;
  std::thread engine([&] {
    for (int i = 0; i < kCalls; ++i) {
      const std::string id = "r" + std::to_string(i);
      engine_.wait_for_request(id);
      for (int token = 0; token < 7; ++token) engine_.send(id, some_tokens({token}, "x"));
      engine_.send(id, last_event(i % 2 == 0 ? FinishReason::kStop : FinishReason::kAborted));
    }
  });
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext context;
    const auto stream = stub_->Generate(&context, text_request("hi", "r" + std::to_string(i)));
    v1::GenerateResponse response;
    for (int k = 0; k <= i % 9; ++k) stream->Read(&response);  // the first one makes sure that the request has arrived
    context.TryCancel();
    stream->Finish();
  }
  engine.join();
}

TEST_F(GrpcServerTest, TheCallsDeadlineAborts) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(200));
  const auto stream = stub_->Generate(&context, text_request("hi", "r1"));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // A machine that is busy may not have brought the request to the engine by then, and then it need not be aborted.
  EXPECT_TRUE(!engine_.has_seen("r1") || engine_.wait_for_abort("r1"));
}

TEST_F(GrpcServerTest, AbortEndsTheStreamWithAMessageAndCancelled) {
  std::thread other([&] {
    engine_.wait_for_request("r1");
    v1::AbortRequest request;
    v1::AbortResponse response;
    request.set_request_id("r1");
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->Abort(&context, request, &response).ok());
    EXPECT_TRUE(response.found());
    engine_.send("r1", last_event(FinishReason::kAborted));
  });
  const grpc::Status status = generate(text_request("hi", "r1"));
  other.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_NE(status.error_message().find("'r1'"), std::string::npos) << status.error_message();
  ASSERT_EQ(responses_.size(), 1U);
  EXPECT_EQ(responses_[0].completion().finish_reason(), v1::Completion::FINISH_REASON_ABORTED);

  v1::AbortRequest request;
  v1::AbortResponse response;
  request.set_request_id("r1");
  grpc::ClientContext context;
  EXPECT_TRUE(stub_->Abort(&context, request, &response).ok());
  EXPECT_FALSE(response.found());
  grpc::ClientContext context_of_empty;
  request.clear_request_id();
  EXPECT_EQ(stub_->Abort(&context_of_empty, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

/// A call whose prompt is not made before somebody ends it.
class PreparedCall {
 public:
  PreparedCall(v1::Inference::Stub& stub, const FakeEngineClient& engine, const v1::GenerateRequest& request)
      : stream_((context_.set_deadline(std::chrono::system_clock::now() + kTestLimit), stub.Generate(&context_, request))) {
    eventually([&] { return engine.num_endless() == 1; }, "the prompt to be begun");
  }
  void expect_aborted(const std::string& name) {
    v1::GenerateResponse response;
    EXPECT_TRUE(stream_->Read(&response));
    EXPECT_EQ(response.completion().finish_reason(), v1::Completion::FINISH_REASON_ABORTED);
    EXPECT_FALSE(stream_->Read(&response));
    const grpc::Status status = stream_->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_EQ(status.error_message(), name + " was aborted");
  }
  grpc::Status finish() { return stream_->Finish(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> stream_;
};

TEST_F(GrpcServerTest, AnIdIsTakenWhileItsPromptIsMade) {
  PreparedCall call(*stub_, engine_, text_request(FakeEngineClient::kEndlessText, "r1"));
  const grpc::Status second = generate(text_request("hi", "r1"));
  EXPECT_EQ(second.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(second.error_message().find("'r1' belongs to another open request"), std::string::npos) << second.error_message();

  v1::AbortRequest request;
  v1::AbortResponse response;
  request.set_request_id("r1");
  grpc::ClientContext context;
  EXPECT_TRUE(stub_->Abort(&context, request, &response).ok());
  EXPECT_TRUE(response.found());
  call.expect_aborted("request 'r1'");

  std::thread engine([&] {
    engine_.wait_for_request("r1");
    engine_.send("r1", last_event(FinishReason::kStop));
  });
  EXPECT_TRUE(generate(text_request("hi", "r1")).ok());
  engine.join();
}

TEST_F(GrpcServerTest, APromptUnderWayHearsWhyTheEngineFailed) {
  PreparedCall call(*stub_, engine_, text_request(FakeEngineClient::kEndlessText, "r1"));
  engine_.fail(Error(ErrorCode::kUnavailable, "rank 2: its connection broke"));
  const grpc::Status status = call.finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "rank 2: its connection broke");
}

TEST_F(GrpcServerTest, PromptsAreFinishedBeforeTheEnd) {
  for (const std::string id : {"", "r1"}) {
    FakeEngineClient engine;
    GrpcServer server({"127.0.0.1:0"}, engine);
    const auto stub = v1::Inference::NewStub(grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials()));
    PreparedCall call(*stub, engine, text_request(FakeEngineClient::kEndlessText, id));
    server.finish_prompts(std::chrono::steady_clock::now());
    call.expect_aborted(id.empty() ? "the request" : "request 'r1'");
    grpc::ClientContext context;
    const grpc::Status late = stub->Generate(&context, text_request("hi", "r2"))->Finish();
    EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_NE(late.error_message().find("shutting down"), std::string::npos) << late.error_message();
  }
}

TEST_F(GrpcServerTest, ASaltHasABound) {
  v1::GenerateRequest request = text_request("hi", "r1");
  request.set_cache_salt(std::string(257, 's'));
  const grpc::Status status = generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("cache_salt has 257 bytes; allowed: at most 256"), std::string::npos)
      << status.error_message();
}

TEST_F(GrpcServerTest, ReportsModelAndLoad) {
  grpc::ClientContext context;
  v1::GetModelInfoResponse info;
  ASSERT_TRUE(stub_->GetModelInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.name(), "fake");
  EXPECT_EQ(info.dtype(), "f32");
  EXPECT_EQ(info.vocab_size(), 1009);
  EXPECT_EQ(info.context_length(), 77);
  EXPECT_EQ(info.num_expert_workers(), 2);
  EXPECT_EQ(info.stop_token_ids_size(), 2);
  EXPECT_EQ(info.sampling_defaults().temperature(), 0.7);
  EXPECT_FALSE(info.sampling_defaults().has_top_p());
  grpc::ClientContext load_context;
  v1::GetLoadResponse load;
  ASSERT_TRUE(stub_->GetLoad(&load_context, {}, &load).ok());
  EXPECT_EQ(load.running_requests(), 3);
  EXPECT_EQ(load.max_waiting_requests(), 11);
  EXPECT_EQ(load.balancedness(), 0.5);
  EXPECT_EQ(load.prefix_cache().cached_tokens(), 64);
  EXPECT_EQ(load.prefix_cache().misses_size(), 1);
  EXPECT_EQ(load.prefix_cache().misses().at("no_snapshot"), 2);
}

TEST_F(GrpcServerTest, TellsHowWorkersStand) {
  grpc::ClientContext context;
  v1::GetClusterResponse cluster;
  ASSERT_TRUE(v1::Cluster::NewStub(channel_)->GetCluster(&context, {}, &cluster).ok());
  EXPECT_EQ(cluster.state(), v1::GetClusterResponse::STATE_DEGRADED);
  ASSERT_EQ(cluster.workers_size(), 2);
  EXPECT_EQ(cluster.workers(0).state(), v1::Worker::STATE_HEALTHY);
  EXPECT_EQ(cluster.workers(0).rows(), 40);
  EXPECT_EQ(cluster.workers(0).speed(), 1.2);
  EXPECT_EQ(cluster.workers(1).rank(), 2);
  EXPECT_EQ(cluster.workers(1).state(), v1::Worker::STATE_MASKED);
  EXPECT_EQ(cluster.workers(1).reason(), "rank 2 left");
  EXPECT_EQ(cluster.workers(1).changed_us(), 2'500'000);
  EXPECT_EQ(cluster.rows_covered_by_workers(), 5);
  EXPECT_EQ(cluster.rows_covered_by_coordinator(), 6);
  EXPECT_EQ(cluster.kept_expert_bytes(), 7);
  EXPECT_EQ(cluster.changes().at("masked"), 1);
}

TEST_F(GrpcServerTest, TellsWhereExpertsAreAndWhatWasAskedOfThem) {
  const auto stub = v1::Experts::NewStub(channel_);
  grpc::ClientContext context;
  v1::GetPlacementResponse placement;
  ASSERT_TRUE(stub->GetPlacement(&context, {}, &placement).ok());
  EXPECT_EQ(placement.epoch(), 1U);
  ASSERT_EQ(placement.layers_size(), 2);
  ASSERT_EQ(placement.layers(1).ranks_size(), 2);
  EXPECT_EQ(placement.layers(1).ranks(1).rank(), 2);
  EXPECT_EQ(std::vector<int>(placement.layers(1).ranks(1).experts().begin(), placement.layers(1).ranks(1).experts().end()),
            (std::vector<int>{2, 3}));
  grpc::ClientContext load_context;
  v1::GetExpertLoadResponse load;
  ASSERT_TRUE(stub->GetLoad(&load_context, {}, &load).ok());
  EXPECT_EQ(load.num_steps(), 1);
  EXPECT_EQ(load.expert_fixed_cost_rows(), 9);
  EXPECT_EQ(load.balancedness(), 0.5);
  ASSERT_EQ(load.layers_size(), 2);
  EXPECT_EQ(std::vector<double>(load.layers(0).rows().begin(), load.layers(0).rows().end()), (std::vector<double>{0, 3, 0, 0}));
  EXPECT_EQ(load.layers(1).touched_steps(2), 1);
}

TEST_F(GrpcServerTest, WhoIsGoneIsInNoPlacement) {
  engine_.let_second_worker_go();
  const auto stub = v1::Experts::NewStub(channel_);
  grpc::ClientContext context;
  v1::GetPlacementResponse placement;
  ASSERT_TRUE(stub->GetPlacement(&context, {}, &placement).ok());
  ASSERT_EQ(placement.layers_size(), 2);
  for (const v1::GetPlacementResponse::Layer& layer : placement.layers()) {
    ASSERT_EQ(layer.ranks_size(), 1);
    EXPECT_EQ(layer.ranks(0).rank(), 1);
  }
}

TEST_F(GrpcServerTest, APlacementIsSetAsItIsTold) {
  const auto stub = v1::Experts::NewStub(channel_);
  grpc::ClientContext context, set_context;
  v1::GetPlacementResponse told;
  ASSERT_TRUE(stub->GetPlacement(&context, {}, &told).ok());
  EXPECT_FALSE(told.set_by_hand());
  v1::SetPlacementRequest request;
  request.set_epoch(7);
  *request.mutable_layers() = told.layers();
  v1::SetPlacementResponse response;
  const grpc::Status status = stub->SetPlacement(&set_context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.epoch(), 8U);
  const GivenPlacement given = engine_.given();
  ASSERT_EQ(given.size(), 2U);
  ASSERT_EQ(given[1].size(), 2U);
  EXPECT_EQ(given[1][1].rank, 2);
  EXPECT_EQ(given[1][1].experts, (std::vector<int32_t>{2, 3}));
}

TEST_F(GrpcServerTest, ACallThatSetsAPlacementWaitsAsLongAsItsCaller) {
  const auto stub = v1::Experts::NewStub(channel_);
  v1::SetPlacementResponse response;
  grpc::ClientContext late, cancelled, refused;
  late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(stub->SetPlacement(&late, {}, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const auto nobody_waits = [&] { return engine_.num_placements_waited_for() == 0; };
  eventually(nobody_waits, "the engine to be told that the first caller has gone");
  std::thread canceller([&] {
    eventually([&] { return engine_.num_placements_waited_for() == 1; }, "the call to wait in the engine");
    cancelled.TryCancel();
  });
  EXPECT_EQ(stub->SetPlacement(&cancelled, {}, &response).error_code(), grpc::StatusCode::CANCELLED);
  canceller.join();
  eventually(nobody_waits, "the engine to be told that the second caller has gone");
  engine_.refuse(Error(ErrorCode::kAborted, "because of 17"));
  const grpc::Status status = stub->SetPlacement(&refused, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "because of 17");
}

TEST_F(GrpcServerTest, ShutdownCancelsWhatIsStillOpen) {
  grpc::ClientContext context;
  const auto stream = stub_->Generate(&context, text_request("hi", "r1"));
  engine_.wait_for_request("r1");
  server_.set_serving(false);
  server_.shutdown(milliseconds(50));
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_TRUE(engine_.wait_for_abort("r1"));
  engine_.send("r1", last_event(FinishReason::kAborted));
}

TEST_F(GrpcServerTest, AnAddressInUseOrMalformedIsAClearError) {
  const auto refuse = [&](const std::string& address, ErrorCode code) {
    try {
      const GrpcServer second({address}, engine_);
      ADD_FAILURE() << address << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(address), std::string::npos) << e.what();
    }
  };
  refuse(server_.address(), ErrorCode::kFailedPrecondition);
  refuse("203.0.113.7:50051", ErrorCode::kFailedPrecondition);
  for (const std::string address :
       {"", "127.0.0.1", ":50051", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:5x", "::1:5"}) {
    refuse(address, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ferry
