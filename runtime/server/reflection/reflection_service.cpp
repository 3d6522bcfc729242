#include "runtime/server/reflection/reflection_service.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/service_type.h>

#include <array>
#include <utility>

#include "runtime/server/reflection/reflection_answer.h"

namespace ferry {
namespace {

using Bytes = grpc::ByteBuffer;
using grpc::internal::RpcServiceMethod;

/// One call: each question is answered before the next one is read. It owns itself.
class ReflectionCall final : public grpc::ServerBidiReactor<Bytes, Bytes> {
 public:
  explicit ReflectionCall(const std::vector<std::string>& services) : services_(services) { StartRead(&question_); }

  void OnReadDone(bool is_read) override {
    if (!is_read) return Finish(grpc::Status::OK);
    if (question_.Length() > kReflectionBytes)
      return Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the question has " + std::to_string(question_.Length()) +
                                                               " bytes; allowed: at most " + std::to_string(kReflectionBytes)});
    grpc::reflection::v1::ServerReflectionRequest question;
    grpc::Slice text;
    if (!question_.DumpToSingleSlice(&text).ok() || !question.ParseFromArray(text.begin(), static_cast<int>(text.size())))
      return Finish({grpc::StatusCode::INVALID_ARGUMENT, "the question is no ServerReflectionRequest"});
    const grpc::Slice answer(answer_reflection(question, services_).SerializeAsString());
    answer_ = Bytes(&answer, 1);
    StartWrite(&answer_);
  }
  void OnWriteDone(bool is_written) override {
    if (!is_written) return Finish(grpc::Status::OK);  // the client has gone
    StartRead(&question_);
  }
  void OnDone() override { const std::unique_ptr<ReflectionCall> self(this); }

 private:
  const std::vector<std::string>& services_;
  Bytes question_, answer_;
};

/// Its methods are added by hand, as generated code adds those that take bytes (gRPC 1.51): both versions are one.
class ReflectionService final : public grpc::Service {
 public:
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {
    for (int m = 0; m < static_cast<int>(kMethods.size()); ++m) {
      AddMethod(
          std::make_unique<RpcServiceMethod>(kMethods[static_cast<std::size_t>(m)], RpcServiceMethod::BIDI_STREAMING, nullptr)
              .release());
      MarkMethodRawCallback(m, std::make_unique<Handler>([this](grpc::CallbackServerContext*) {
                                 return std::make_unique<ReflectionCall>(services_).release();
                               }).release());
    }
  }

 private:
  using Handler = grpc::internal::CallbackBidiHandler<Bytes, Bytes>;
  static constexpr std::array kMethods = {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                          "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};

  const std::vector<std::string> services_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_reflection_service(std::vector<std::string> services) {
  return std::make_shared<ReflectionService>(std::move(services));
}

}  // namespace ferry
