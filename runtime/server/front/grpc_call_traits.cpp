#include "runtime/server/front/grpc_call_traits.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <string_view>

#include "ferry/v1/inference.pb.h"
#include "runtime/server/front/prompt_pieces.h"
#include "runtime/server/parsed_bytes.h"
#include "vllm/engine.pb.h"
#include "vllm/inference.pb.h"

namespace ferry {
namespace {

constexpr std::string_view kGenerate = "/ferry.v1.Inference/Generate", kAbortOne = "/ferry.v1.Inference/Abort";
constexpr std::string_view kEngineGenerate = "/vllm.grpc.engine.VllmEngine/Generate";
constexpr std::string_view kVllmGenerate = "/vllm.Inference/Generate", kVllmStream = "/vllm.Inference/GenerateStream";

/// False for bytes that are no such message, or one that a coordinator may refuse for its size in memory. Reading takes nothing
/// from `bytes`.
template <class Message>
bool read(const grpc::ByteBuffer& bytes, Message& message) {
  static const ParsedBytes parsed_bytes(*Message::descriptor());
  const int64_t most = 2 * static_cast<int64_t>(bytes.Length()) + kMessagePartsBytes;
  grpc::ByteBuffer counted = bytes, own = bytes;  // share the slices
  grpc::ProtoBufferReader counter(&counted), reader(&own);
  if (!counter.status().ok() || parsed_bytes.count(counter, most) > most) return false;
  return reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
}

template <class Ids>
void add_tokens(const Ids& ids, PromptPieces& pieces) {
  for (const auto id : ids) {
    if (pieces.is_full()) return;
    pieces.add_token(static_cast<uint32_t>(id));
  }
}

void add_message(const v1::ChatMessage& message, PromptPieces& pieces) {
  pieces.add("\n");
  pieces.add(message.role());
  pieces.add("\n");
  pieces.add(message.content());
  for (const v1::Part& part : message.parts()) pieces.add(part.has_text() ? part.text() : part.SerializeAsString());
}

std::vector<uint64_t> beginnings_of(const v1::GenerateRequest& request) {
  PromptPieces pieces(request.cache_salt());
  pieces.add(request.text());
  add_tokens(request.token_ids().ids(), pieces);
  for (const v1::ChatMessage& message : request.chat().messages()) {
    if (!pieces.is_full()) add_message(message, pieces);
  }
  return pieces.beginnings();
}

std::vector<uint64_t> beginnings_of(const ::vllm::grpc::engine::GenerateRequest& request) {
  PromptPieces pieces("");
  pieces.add(request.text());
  add_tokens(request.tokenized().input_ids(), pieces);
  return pieces.beginnings();
}

std::vector<uint64_t> beginnings_of(const ::vllm::GenerateRequest& request) {
  PromptPieces pieces(request.kv().cache_salt());
  pieces.add(request.text());
  add_tokens(request.token_ids().ids(), pieces);
  return pieces.beginnings();
}

template <class Message>
CallTraits traits_of(const grpc::ByteBuffer& bytes) {
  Message message;
  if (!read(bytes, message)) return {};  // the coordinator says so
  return {.session = {}, .user = {}, .beginnings = beginnings_of(message)};
}

}  // namespace

MethodKind method_kind(const std::string& method) {
  if (method == kGenerate || method == kEngineGenerate || method == kVllmGenerate || method == kVllmStream)
    return MethodKind::kPrompt;
  if (method == kAbortOne || method == "/vllm.grpc.engine.VllmEngine/Abort" || method == "/vllm.Control/Abort")
    return MethodKind::kAbort;
  const bool is_capture = method.starts_with("/ferry.v1.Profile/") || method == "/vllm.grpc.engine.VllmEngine/StartProfile" ||
                          method == "/vllm.grpc.engine.VllmEngine/StopProfile";
  if (is_capture) return MethodKind::kCapture;
  return method == "/vllm.grpc.engine.VllmEngine/HealthCheck" ? MethodKind::kHealthCheck : MethodKind::kOther;
}

CallTraits grpc_call_traits(const std::string& method, const grpc::ByteBuffer& message) {
  if (method == kGenerate) return traits_of<v1::GenerateRequest>(message);
  if (method == kEngineGenerate) return traits_of<::vllm::grpc::engine::GenerateRequest>(message);
  if (method == kVllmGenerate || method == kVllmStream) return traits_of<::vllm::GenerateRequest>(message);
  return {};
}

bool says_found(const std::string& method, const grpc::ByteBuffer& answer) {
  v1::AbortResponse response;
  return method == kAbortOne && read(answer, response) && response.found();
}

}  // namespace ferry
