#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "ferry/v1/inference.grpc.pb.h"
#include "runtime/base/error.h"
#include "runtime/server/grpc_server.h"
#include "runtime/server/vllm/engine_facts.h"
#include "runtime/server/vllm/tokenizer_archive.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "vllm/engine.grpc.pb.h"
#include "vllm/inference.grpc.pb.h"

namespace ferry::vllm {
namespace {

namespace wire = ::vllm::grpc::engine;
namespace common = ::smg::grpc::common;

using std::chrono::seconds;
using test::FakeEngineClient;
using test::last_event;
using test::some_tokens;

void set_deadline(grpc::ClientContext& context) { context.set_deadline(std::chrono::system_clock::now() + kTestLimit); }

GrpcServerOptions demo_options(const std::vector<std::string>& keys) {
  GrpcServerOptions options{.address = "127.0.0.1:0"};
  if (!keys.empty()) options.access.keys = ApiKeys(keys);
  options.vllm = {.model_names = {"demo"}, .model_path = (test::source_folder() / "launch" / "demo").string(), .defaults = {}};
  options.vllm.defaults.temperature = 0.5;
  return options;
}

class VllmServicesTest : public testing::Test {
 protected:
  explicit VllmServicesTest(const std::vector<std::string>& keys = {}) : server_(demo_options(keys), engine_) {
    channel_ = grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials());
    stub_ = wire::VllmEngine::NewStub(channel_);
    inference_ = ::vllm::Inference::NewStub(channel_);
  }

  /// Sends `request` and reads to the end.
  grpc::Status generate(const wire::GenerateRequest& request) {
    grpc::ClientContext context;
    set_deadline(context);
    const auto stream = stub_->Generate(&context, request);
    responses_.clear();
    wire::GenerateResponse response;
    while (stream->Read(&response)) responses_.push_back(response);
    return stream->Finish();
  }

  /// The last message of each completion.
  std::map<uint32_t, wire::GenerateComplete> completes() const {
    std::map<uint32_t, wire::GenerateComplete> found;
    for (const wire::GenerateResponse& response : responses_) {
      if (response.has_complete()) found[response.complete().index()] = response.complete();
    }
    return found;
  }

  static wire::GenerateRequest ids_request(const std::string& id) {
    wire::GenerateRequest request;
    request.set_request_id(id);
    request.mutable_tokenized()->add_input_ids(65);
    request.mutable_sampling_params()->set_max_tokens(5);
    return request;
  }

  FakeEngineClient engine_;
  GrpcServer server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::VllmEngine::Stub> stub_;
  std::unique_ptr<::vllm::Inference::Stub> inference_;
  std::vector<wire::GenerateResponse> responses_;
};

class VllmKeysTest : public VllmServicesTest {
 protected:
  VllmKeysTest() : VllmServicesTest({"open-sesame"}) {}
};

TEST_F(VllmServicesTest, StreamsChunksAndTheLastMessage) {
  wire::GenerateRequest request = ids_request("r1");
  request.set_stream(true);
  std::thread engine([&] {
    const Request seen = engine_.wait_for_request("r1");
    EXPECT_EQ(seen.prompt, (std::vector<TokenId>{65}));
    EXPECT_EQ(seen.sampling.max_tokens, 5);
    EXPECT_EQ(seen.sampling.temperature, 1.0F);
    EXPECT_TRUE(seen.deadline.has_value());
    EXPECT_EQ(seen.siblings, nullptr);
    engine_.send("r1", some_tokens({7, 8}, "ab"));
    engine_.send("r1", last_event(FinishReason::kLength));
  });
  EXPECT_TRUE(generate(request).ok());
  engine.join();
  ASSERT_EQ(responses_.size(), 2U);
  EXPECT_EQ(responses_[0].chunk().token_ids_size(), 2);
  EXPECT_EQ(responses_[1].complete().output_ids_size(), 2);
  EXPECT_EQ(responses_[1].complete().finish_reason(), "length");
}

TEST_F(VllmServicesTest, CompletionsOfARequestAreSiblingsWithSeedsOfTheirOwn) {
  wire::GenerateRequest request = ids_request("r1");
  request.mutable_sampling_params()->set_n(2);
  request.mutable_sampling_params()->set_seed(40);
  std::thread engine([&] {
    engine_.wait_for_request("r1#1");
    const Request first = engine_.open_request("r1"), second = engine_.open_request("r1#1");
    ASSERT_NE(first.siblings, nullptr);
    EXPECT_EQ(first.siblings, second.siblings);
    EXPECT_EQ(first.siblings->num_all, 2);
    EXPECT_EQ(first.sampling.seed, 40U);
    EXPECT_EQ(second.sampling.seed, 41U);
    engine_.send("r1#1", some_tokens({8}, "b"));
    engine_.send("r1#1", last_event(FinishReason::kStop));
    engine_.send("r1", some_tokens({7}, "a"));
    engine_.send("r1", last_event(FinishReason::kStop));
  });
  EXPECT_TRUE(generate(request).ok());
  engine.join();
  EXPECT_EQ(responses_.size(), 2U);
  const auto told = completes();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told.at(0).output_ids(0), 7U);
  EXPECT_EQ(told.at(1).output_ids(0), 8U);
}

TEST_F(VllmServicesTest, OneThatFailsEndsTheOthersAndTheCall) {
  wire::GenerateRequest request = ids_request("r1");
  request.mutable_sampling_params()->set_n(2);
  std::thread engine([&] {
    engine_.wait_for_request("r1#1");
    GenerateEvent failed{.finish_reason = FinishReason::kError};
    failed.error = Error(ErrorCode::kUnavailable, "rank 2 is lost");
    engine_.send("r1", failed);
    EXPECT_TRUE(engine_.wait_for_abort("r1#1"));
    engine_.send("r1#1", last_event(FinishReason::kAborted));
  });
  const grpc::Status status = generate(request);
  engine.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "rank 2 is lost");
}

TEST_F(VllmServicesTest, AllCompletionsAreTakenOrNone) {
  wire::GenerateRequest request = ids_request("r1");
  request.set_stream(true);
  request.mutable_sampling_params()->set_n(3);
  engine_.refuse(Error(ErrorCode::kResourceExhausted, "the queue is full"), /*num_taken=*/2);
  EXPECT_EQ(generate(request).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(responses_.empty());
  EXPECT_TRUE(engine_.wait_for_abort("r1") && engine_.wait_for_abort("r1#1"));
}

TEST_F(VllmServicesTest, MoreCompletionsThanTheEngineHoldsAreRefused) {
  wire::GenerateRequest request = ids_request("r1");
  request.mutable_sampling_params()->set_n(17);
  const grpc::Status status = generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("at most 16"), std::string::npos) << status.error_message();
}

TEST_F(VllmServicesTest, AbortEndsAllCompletionsOfARequest) {
  wire::GenerateRequest request = ids_request("r1");
  request.mutable_sampling_params()->set_n(2);
  std::thread engine([&] {
    engine_.wait_for_request("r1#1");
    grpc::ClientContext context;
    set_deadline(context);
    wire::AbortRequest abort;
    abort.add_request_ids("r1");
    abort.add_request_ids("nobody");
    wire::AbortResponse response;
    EXPECT_TRUE(stub_->Abort(&context, abort, &response).ok());
    EXPECT_TRUE(engine_.wait_for_abort("r1") && engine_.wait_for_abort("r1#1"));
    engine_.send("r1", last_event(FinishReason::kAborted));
    engine_.send("r1#1", last_event(FinishReason::kAborted));
  });
  EXPECT_EQ(generate(request).error_code(), grpc::StatusCode::CANCELLED);
  engine.join();
  EXPECT_EQ(completes().at(1).finish_reason(), "abort");
  grpc::ClientContext context;
  set_deadline(context);
  wire::AbortRequest nameless;
  nameless.add_request_ids("");
  wire::AbortResponse response;
  EXPECT_EQ(stub_->Abort(&context, nameless, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(VllmServicesTest, ACallThatIsDroppedEndsItsRequests) {
  wire::GenerateRequest request = ids_request("r1");
  request.mutable_sampling_params()->set_n(2);
  grpc::ClientContext context;
  const auto stream = stub_->Generate(&context, request);
  engine_.wait_for_request("r1#1");
  context.TryCancel();
  EXPECT_TRUE(engine_.wait_for_abort("r1") && engine_.wait_for_abort("r1#1"));
}

TEST_F(VllmServicesTest, ThePromptsEndStaysWhereItIsCut) {
  wire::GenerateRequest request = ids_request("r1");
  for (const uint32_t id : {66U, 67U}) request.mutable_tokenized()->add_input_ids(id);
  request.mutable_sampling_params()->set_truncate_prompt_tokens(2);
  std::thread engine([&] {
    EXPECT_EQ(engine_.wait_for_request("r1").prompt, (std::vector<TokenId>{66, 67}));
    engine_.send("r1", last_event(FinishReason::kStop));
  });
  EXPECT_TRUE(generate(request).ok());
  engine.join();
}

TEST_F(VllmServicesTest, ConstraintsAreCompiledOrRefusedByName) {
  wire::GenerateRequest request = ids_request("r1");
  request.mutable_sampling_params()->set_json_schema("{");
  grpc::Status status = generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("sampling_params.json_schema"), std::string::npos) << status.error_message();
  request.mutable_sampling_params()->mutable_choice()->add_choices("yes");
  if (!GrammarEngine::is_available()) {
    EXPECT_EQ(generate(request).error_code(), grpc::StatusCode::UNIMPLEMENTED);
    return;
  }
  std::thread engine([&] {
    EXPECT_NE(engine_.wait_for_request("r1").grammar, nullptr);
    engine_.send("r1", last_event(FinishReason::kStop));
  });
  EXPECT_TRUE(generate(request).ok());
  engine.join();
}

TEST_F(VllmServicesTest, WhatIsNotServedSaysSo) {
  const auto expect = [&](const std::function<grpc::Status(grpc::ClientContext*)>& call, const std::string& part) {
    grpc::ClientContext context;
    set_deadline(context);
    const grpc::Status status = call(&context);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_NE(status.error_message().find(part), std::string::npos) << status.error_message();
  };
  wire::EmbedResponse embedding;
  common::FlushCacheResponse flush;
  common::ProfileResponse profile;
  common::KvEventBatch batch;
  expect([&](auto* context) { return stub_->Embed(context, {}, &embedding); }, "Embed");
  expect([&](auto* context) { return stub_->FlushCache(context, {}, &flush); }, "FlushCache");
  expect([&](auto* context) { return stub_->StartProfile(context, {}, &profile); }, "captures");
  expect(
      [&](auto* context) {
        const auto stream = stub_->SubscribeKvEvents(context, {});
        EXPECT_FALSE(stream->Read(&batch));
        return stream->Finish();
      },
      "SubscribeKvEvents");
}

TEST_F(VllmServicesTest, TellsOfTheModelTheServerAndItsLoad) {
  grpc::ClientContext model_context, server_context, load_context;
  wire::GetModelInfoResponse model;
  ASSERT_TRUE(stub_->GetModelInfo(&model_context, {}, &model).ok());
  EXPECT_EQ(model.served_model_name(), "demo");
  EXPECT_EQ(model.model_type(), "qwen3_5_moe");
  EXPECT_EQ(model.architectures(0), "FakeForCausalLM");
  EXPECT_EQ(model.pad_token_id(), 6080);
  EXPECT_EQ(model.vocab_size(), 1009U);
  EXPECT_EQ(model.max_context_length(), 100'001U);
  EXPECT_TRUE(model.is_generation());
  EXPECT_FALSE(model.supports_vision());
  EXPECT_EQ(model.tokenizer_path(), model.model_path());
  EXPECT_EQ(nlohmann::json::parse(model.default_sampling_params_json()), (nlohmann::json{{"temperature", 0.5}}));
  wire::GetServerInfoResponse server;
  ASSERT_TRUE(stub_->GetServerInfo(&server_context, {}, &server).ok());
  EXPECT_EQ(server.active_requests(), 3U);
  EXPECT_EQ(server.max_num_seqs(), 5);
  EXPECT_EQ(server.server_type(), "vllm-grpc");
  EXPECT_EQ(server.model_dtype(), "torch.float32");
  EXPECT_EQ(server.constrained_decoding_start(), "after_reasoning");
  EXPECT_EQ(server.mm_processor(), "");
  EXPECT_GT(server.uptime_seconds(), 0);
  wire::GetLoadsRequest request;
  request.add_include("core");
  wire::GetLoadsResponse loads;
  ASSERT_TRUE(stub_->GetLoads(&load_context, request, &loads).ok());
  ASSERT_EQ(loads.loads_size(), 1);
  EXPECT_EQ(loads.loads(0).num_running_reqs(), 3);
  EXPECT_EQ(loads.loads(0).max_running_requests(), 5);
  EXPECT_EQ(loads.loads(0).utilization(), 0.6);
  grpc::ClientContext other_context;
  request.set_dp_rank(1);
  EXPECT_EQ(stub_->GetLoads(&other_context, request, &loads).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(VllmServicesTest, TheTokenizersArchiveComesInPieces) {
  grpc::ClientContext context;
  set_deadline(context);
  const auto stream = stub_->GetTokenizer(&context, {});
  std::string bytes, sha256;
  common::GetTokenizerChunk piece;
  while (stream->Read(&piece)) {
    EXPECT_LE(piece.data().size(), std::size_t{64} << 10);
    EXPECT_TRUE(sha256.empty()) << "a piece after the last one";
    bytes += piece.data();
    sha256 = piece.sha256();
  }
  EXPECT_TRUE(stream->Finish().ok());
  const TokenizerArchive archive = make_tokenizer_archive(test::source_folder() / "launch" / "demo");
  EXPECT_TRUE(bytes == archive.bytes);
  EXPECT_EQ(sha256, archive.sha256);
}

TEST_F(VllmServicesTest, HealthIsTheServers) {
  const auto is_healthy = [&] {
    grpc::ClientContext context;
    wire::HealthCheckResponse response;
    EXPECT_TRUE(stub_->HealthCheck(&context, {}, &response).ok());
    return response.healthy();
  };
  EXPECT_TRUE(is_healthy());
  server_.set_serving(false);
  EXPECT_FALSE(is_healthy());
}

TEST_F(VllmServicesTest, InferenceAnswersAsAWholeOrInAStream) {
  ::vllm::GenerateRequest request;
  request.set_request_id("r1");
  request.set_text("hi");
  std::thread engine([&] {
    const Request seen = engine_.wait_for_request("r1");
    EXPECT_EQ(seen.prompt, (std::vector<TokenId>{'h', 'i'}));
    EXPECT_EQ(seen.sampling.temperature, 0.0F);
    engine_.send("r1", some_tokens({7}, "a"));
    engine_.send("r1", last_event(FinishReason::kLength));
  });
  grpc::ClientContext whole_context;
  set_deadline(whole_context);
  ::vllm::GenerateResponse response;
  EXPECT_TRUE(inference_->Generate(&whole_context, request, &response).ok());
  engine.join();
  EXPECT_EQ(response.prompt_info().num_prompt_tokens(), 2U);
  EXPECT_EQ(response.outputs().text(), "a");
  EXPECT_EQ(response.outputs().finish_info().finish_reason(), ::vllm::FinishInfo::LENGTH);
  engine = std::thread([&] {
    engine_.wait_for_request("r1");
    engine_.send("r1", some_tokens({7}, "a"));
    engine_.send("r1", last_event(FinishReason::kLength));
  });
  grpc::ClientContext context;
  set_deadline(context);
  const auto stream = inference_->GenerateStream(&context, request);
  std::string text;
  bool has_prompt = false;
  while (stream->Read(&response)) {
    EXPECT_EQ(response.has_prompt_info(), !has_prompt);
    has_prompt = true;
    text += response.outputs().text();
  }
  EXPECT_TRUE(stream->Finish().ok());
  engine.join();
  EXPECT_EQ(text, "a");
}

TEST_F(VllmServicesTest, AWholeAnswerHasRoomForOneCompletion) {
  ::vllm::GenerateRequest request;
  request.set_text("hi");
  request.set_temperature(1);
  request.mutable_sampling()->set_num_sequences(2);
  grpc::ClientContext context;
  set_deadline(context);
  ::vllm::GenerateResponse response;
  const grpc::Status status = inference_->Generate(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("sampling.num_sequences"), std::string::npos) << status.error_message();
}

TEST_F(VllmServicesTest, ThereIsOneCopyOfTheModel) {
  ::vllm::GenerateRequest request;
  grpc::ClientContext context;
  context.AddMetadata("x-data-parallel-rank", "1");
  ::vllm::GenerateResponse response;
  const grpc::Status status = inference_->Generate(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("x-data-parallel-rank is '1'"), std::string::npos) << status.error_message();
}

TEST_F(VllmServicesTest, AnErrorOfAWholeAnswerIsItsStatus) {
  ::vllm::GenerateRequest request;
  request.set_request_id("r1");
  request.set_text("hi");
  std::thread engine([&] {
    engine_.wait_for_request("r1");
    grpc::ClientContext context;
    ::vllm::AbortRequest abort;
    abort.add_request_ids("r1");
    ::vllm::AbortResponse done;
    EXPECT_TRUE(::vllm::Control::NewStub(channel_)->Abort(&context, abort, &done).ok());
    EXPECT_TRUE(engine_.wait_for_abort("r1"));
    engine_.send("r1", last_event(FinishReason::kAborted));
  });
  grpc::ClientContext context;
  set_deadline(context);
  ::vllm::GenerateResponse response;
  EXPECT_EQ(inference_->Generate(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED);
  engine.join();
}

TEST_F(VllmKeysTest, OnlyHealthIsForAnybody) {
  grpc::ClientContext health_context, info_context, load_context, whole_context, abort_context, tokenizer_context;
  wire::HealthCheckResponse health;
  EXPECT_TRUE(stub_->HealthCheck(&health_context, {}, &health).ok());
  const auto locked = grpc::StatusCode::UNAUTHENTICATED;
  EXPECT_EQ(generate(ids_request("r1")).error_code(), locked);
  wire::GetModelInfoResponse info;
  EXPECT_EQ(stub_->GetModelInfo(&info_context, {}, &info).error_code(), locked);
  EXPECT_TRUE(info.model_path().empty());
  wire::GetLoadsResponse loads;
  EXPECT_EQ(stub_->GetLoads(&load_context, {}, &loads).error_code(), locked);
  ::vllm::GenerateResponse whole;
  EXPECT_EQ(inference_->Generate(&whole_context, {}, &whole).error_code(), locked);
  wire::AbortResponse aborted;
  EXPECT_EQ(stub_->Abort(&abort_context, {}, &aborted).error_code(), locked);
  common::GetTokenizerChunk piece;
  const auto stream = stub_->GetTokenizer(&tokenizer_context, {});
  EXPECT_FALSE(stream->Read(&piece));
  EXPECT_EQ(stream->Finish().error_code(), locked);
  grpc::ClientContext open_context;
  open_context.AddMetadata("authorization", "Bearer open-sesame");
  EXPECT_TRUE(stub_->GetModelInfo(&open_context, {}, &info).ok());
}

TEST(VllmTokenRate, IsOfTheLastSecondOrMore) {
  TokenRate rate;
  const TokenRate::SteadyClock::time_point start{};
  EXPECT_EQ(rate.take(100, start), 0);
  EXPECT_EQ(rate.take(140, start + std::chrono::milliseconds(500)), 0) << "too early to tell";
  EXPECT_EQ(rate.take(180, start + seconds(2)), 40);
  EXPECT_EQ(rate.take(500, start + std::chrono::milliseconds(2500)), 40);
  EXPECT_EQ(rate.take(180, start + seconds(4)), 0);
}

}  // namespace
}  // namespace ferry::vllm
