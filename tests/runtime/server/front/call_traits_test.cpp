#include "runtime/server/front/call_traits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ferry/v1/inference.pb.h"
#include "runtime/base/json.h"
#include "runtime/server/front/grpc_call_traits.h"
#include "runtime/server/front/prompt_pieces.h"
#include "vllm/engine.pb.h"
#include "vllm/inference.pb.h"

namespace ferry {
namespace {

const std::string kLong(3 * PromptPieces::kPieceBytes, 'l');  // three pieces and more, with a role before

CallTraits traits_of(const std::string& body, HttpHeaders headers = {}) {
  HttpRequest head;
  head.headers = std::move(headers);
  return http_call_traits(head, body, {.depth = 16, .bytes = 1 << 20, .values = 1 << 16});
}

std::string message(const std::string& role, const std::string& content) {
  return R"({"role":")" + role + R"(","content":)" + content + "}";
}
std::string quoted(const std::string& text) { return "\"" + text + "\""; }
std::string chat(const std::string& messages, const std::string& more = "") {
  return R"({"messages":[)" + messages + "]" + more + "}";
}

/// How many beginnings two prompts share.
std::size_t num_shared(const CallTraits& a, const CallTraits& b) {
  const auto [end, unused] = std::mismatch(a.beginnings.begin(), a.beginnings.end(), b.beginnings.begin(), b.beginnings.end());
  return static_cast<std::size_t>(end - a.beginnings.begin());
}

TEST(CallTraits, SessionsAreNamedByHeaderThenByFields) {
  const auto session_of = [](const std::string& body, HttpHeaders headers = {}) { return traits_of(body, headers).session; };
  EXPECT_EQ(session_of(R"({"session_id":"s"})"), session_hash("s"));
  EXPECT_EQ(session_of(R"({"prompt_cache_key":"k"})"), session_hash("k"));
  EXPECT_EQ(session_of(R"({"session_id":"s","prompt_cache_key":"k"})", {{"x-session-id", "h"}}), session_hash("h"));
  EXPECT_EQ(session_of("no JSON", {{"x-session-id", "h"}}), session_hash("h"));
  EXPECT_EQ(session_of(R"({"session_id":7,"user":"u"})"), std::nullopt);
}

TEST(CallTraits, UsersAreThoseOfEitherApi) {
  EXPECT_EQ(traits_of(R"({"user":"u"})").user, user_hash("u"));
  EXPECT_EQ(traits_of(R"({"metadata":{"user_id":"u"}})").user, user_hash("u"));
  EXPECT_EQ(traits_of(R"({"metadata":"u"})").user, std::nullopt);
  EXPECT_NE(user_hash("u"), session_hash("u"));
}

TEST(CallTraits, ConversationsGrowAtTheirEnd) {
  const std::string first = message("user", quoted(kLong));
  const std::string more = first + "," + message("assistant", quoted(kLong)) + "," + message("user", quoted("and?"));
  const CallTraits one = traits_of(chat(first)), two = traits_of(chat(more));
  EXPECT_EQ(one.beginnings.size(), 3u);
  EXPECT_EQ(num_shared(one, two), 3u);
  EXPECT_GT(two.beginnings.size(), 5u);
  EXPECT_EQ(num_shared(one, traits_of(chat(message("system", quoted("You")) + "," + first))), 0u);
  EXPECT_EQ(num_shared(one, traits_of(chat(first, R"(,"cache_salt":"mine")"))), 0u);
  EXPECT_EQ(num_shared(one, traits_of(chat(first, R"(,"tools":[{"type":"function"}])"))), 0u);
  EXPECT_EQ(num_shared(one, traits_of(chat(first, R"(,"temperature":0.5)"))), 3u);
}

TEST(CallTraits, PartsAreTheTextThatTheyHold) {
  const CallTraits plain = traits_of(chat(message("user", quoted(kLong))));
  const std::string part = R"([{"type":"text","text":)" + quoted(kLong) + R"(,"cache_control":{"type":"ephemeral"}}])";
  EXPECT_EQ(num_shared(plain, traits_of(chat(message("user", part)))), 3u);
  const std::string image = R"([{"type":"image_url","image_url":{"url":"data:)" + kLong + R"("},"cache_control":{}}])";
  const std::string same = R"([{"type":"image_url","image_url":{"url":"data:)" + kLong + R"("}}])";
  EXPECT_EQ(num_shared(traits_of(chat(message("user", image))), traits_of(chat(message("user", same)))), 3u);
}

TEST(CallTraits, AccountingIsNoPartOfASystemMessage) {
  const auto body = [](const std::string& bill) {
    return R"({"system":[{"type":"text","text":"x-anthropic-billing-header: )" + bill + R"("},{"type":"text","text":)" +
           quoted(kLong) + R"(}],"messages":[]})";
  };
  EXPECT_EQ(num_shared(traits_of(body("1")), traits_of(body("2"))), 3u);
}

TEST(CallTraits, EachApiSaysItsPromptItsOwnWay) {
  const CallTraits system = traits_of(R"({"system":)" + quoted(kLong) + R"(,"messages":[]})");
  EXPECT_EQ(num_shared(system, traits_of(R"({"instructions":)" + quoted(kLong) + R"(,"input":"hi"})")), 3u);
  EXPECT_EQ(num_shared(traits_of(R"({"input":)" + quoted(kLong) + "}"), traits_of(chat(message("user", quoted(kLong))))), 3u);
  EXPECT_EQ(traits_of(R"({"prompt":)" + quoted(kLong) + "}").beginnings.size(), 3u);
  EXPECT_EQ(
      num_shared(traits_of(R"({"prompt":[)" + quoted(kLong) + R"(,"b"]})"), traits_of(R"({"prompt":)" + quoted(kLong) + "}")),
      3u);
  std::string ids = "1";
  for (int i = 0; i < 64; ++i) ids += "," + std::to_string(i);
  EXPECT_EQ(traits_of(R"({"prompt":[)" + ids + "]}").beginnings.size(), 1u);
  EXPECT_EQ(traits_of(R"({"prompt":[[)" + ids + "],[1]]}").beginnings.size(), 1u);
}

TEST(CallTraits, WhatCannotBeReadHasNone) {
  for (const char* body : {"", "[1]", "{", R"({"messages":7,"tools":null,"prompt":[],"input":{"a":1}})",
                           R"({"prompt":[[[1]],7,{}],"messages":[1,null,"x",{"role":1,"content":[7,{"text":2}]}]})"}) {
    const CallTraits traits = traits_of(body);
    EXPECT_TRUE(traits.beginnings.empty()) << body;
    EXPECT_EQ(traits.session, std::nullopt) << body;
  }
}

template <class Message>
grpc::ByteBuffer bytes_of(const Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

TEST(GrpcCallTraits, AConversationIsTheSameOverHttp) {
  v1::GenerateRequest request;
  v1::ChatMessage& question = *request.mutable_chat()->add_messages();
  question.set_role("user");
  question.set_content(kLong);
  const grpc::ByteBuffer bytes = bytes_of(request);
  const CallTraits traits = grpc_call_traits("/ferry.v1.Inference/Generate", bytes);
  EXPECT_EQ(num_shared(traits, traits_of(chat(message("user", quoted(kLong))))), 3u);
  EXPECT_EQ(bytes.Length(), request.ByteSizeLong());  // reading takes nothing away
  request.set_cache_salt("mine");
  EXPECT_EQ(num_shared(traits, grpc_call_traits("/ferry.v1.Inference/Generate", bytes_of(request))), 0u);
}

TEST(GrpcCallTraits, TokensAreTheSameInAllServices) {
  v1::GenerateRequest ferry;
  ::vllm::grpc::engine::GenerateRequest engine;
  ::vllm::GenerateRequest inference;
  for (int id = 0; id < 64; ++id) {
    ferry.mutable_token_ids()->add_ids(id);
    engine.mutable_tokenized()->add_input_ids(static_cast<uint32_t>(id));
    inference.mutable_token_ids()->add_ids(static_cast<uint32_t>(id));
  }
  const CallTraits traits = grpc_call_traits("/ferry.v1.Inference/Generate", bytes_of(ferry));
  ASSERT_EQ(traits.beginnings.size(), 1u);
  EXPECT_EQ(grpc_call_traits("/vllm.grpc.engine.VllmEngine/Generate", bytes_of(engine)).beginnings, traits.beginnings);
  EXPECT_EQ(grpc_call_traits("/vllm.Inference/Generate", bytes_of(inference)).beginnings, traits.beginnings);
  EXPECT_EQ(grpc_call_traits("/vllm.Inference/GenerateStream", bytes_of(inference)).beginnings, traits.beginnings);
  EXPECT_TRUE(grpc_call_traits("/ferry.v1.Inference/GetLoad", bytes_of(ferry)).beginnings.empty());
  const grpc::Slice nonsense("\xff\xff\xff\xff");
  EXPECT_TRUE(grpc_call_traits("/ferry.v1.Inference/Generate", grpc::ByteBuffer(&nonsense, 1)).beginnings.empty());
}

/// Anybody may send such a message, and the front would parse it.
TEST(GrpcCallTraits, WhatIsLargeOnceParsedIsNotParsed) {
  v1::GenerateRequest request;
  request.set_text(kLong);
  EXPECT_EQ(grpc_call_traits("/ferry.v1.Inference/Generate", bytes_of(request)).beginnings.size(), 3u);
  for (int i = 0; i < 500'000; ++i) request.mutable_sampling()->add_stop("");
  EXPECT_TRUE(grpc_call_traits("/ferry.v1.Inference/Generate", bytes_of(request)).beginnings.empty());
}

TEST(GrpcCallTraits, MethodsHaveKinds) {
  EXPECT_EQ(method_kind("/ferry.v1.Inference/Generate"), MethodKind::kPrompt);
  EXPECT_EQ(method_kind("/ferry.v1.Inference/Abort"), MethodKind::kAbort);
  EXPECT_EQ(method_kind("/vllm.Control/Abort"), MethodKind::kAbort);
  EXPECT_EQ(method_kind("/ferry.v1.Profile/Save"), MethodKind::kCapture);
  EXPECT_EQ(method_kind("/vllm.grpc.engine.VllmEngine/StartProfile"), MethodKind::kCapture);
  EXPECT_EQ(method_kind("/vllm.grpc.engine.VllmEngine/HealthCheck"), MethodKind::kHealthCheck);
  EXPECT_EQ(method_kind("/ferry.v1.Inference/GetLoad"), MethodKind::kOther);
  v1::AbortResponse found;
  found.set_found(true);
  EXPECT_TRUE(says_found("/ferry.v1.Inference/Abort", bytes_of(found)));
  EXPECT_FALSE(says_found("/ferry.v1.Inference/Abort", bytes_of(v1::AbortResponse())));
  EXPECT_FALSE(says_found("/vllm.Control/Abort", bytes_of(found)));
}

}  // namespace
}  // namespace ferry
