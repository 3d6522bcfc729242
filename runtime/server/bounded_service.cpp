#include "runtime/server/bounded_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/support/method_handler.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/server/parsed_bytes.h"

// A service is a list of methods, each with a handler that parses the message and then runs the call. gRPC's interceptors come
// after parsing, and allocators of messages are for some kinds of methods only. So handlers are put before handlers here, with
// those classes of grpc::internal that generated code uses (gRPC 1.51).

namespace ferry {
namespace {

using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using grpc::internal::MethodHandler;
using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;

/// The bytes of a message that has come; takes nothing from them.
class MessageBytes final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit MessageBytes(grpc_byte_buffer* buffer) { is_open_ = grpc_byte_buffer_reader_init(&reader_, buffer) != 0; }
  ~MessageBytes() override {
    if (is_open_) grpc_byte_buffer_reader_destroy(&reader_);
  }
  MessageBytes(const MessageBytes&) = delete;
  MessageBytes& operator=(const MessageBytes&) = delete;

  bool Next(const void** data, int* size) override {
    if (num_given_back_ == 0 && (!is_open_ || grpc_byte_buffer_reader_peek(&reader_, &slice_) == 0)) return false;
    const auto length = static_cast<int>(GRPC_SLICE_LENGTH(*slice_));
    const int begin = num_given_back_ == 0 ? 0 : length - num_given_back_;
    *data = GRPC_SLICE_START_PTR(*slice_) + begin;
    *size = length - begin;
    num_read_ += *size;
    num_given_back_ = 0;
    return true;
  }
  void BackUp(int count) override {
    num_given_back_ = count;
    num_read_ -= count;
  }
  bool Skip(int count) override {
    const void* data = nullptr;
    int size = 0;
    while (count > 0 && Next(&data, &size)) {
      if (size > count) BackUp(size - count);
      count -= std::min(count, size);
    }
    return count == 0;
  }
  int64_t ByteCount() const override { return num_read_; }

 private:
  grpc_byte_buffer_reader reader_{};
  bool is_open_ = false;
  grpc_slice* slice_ = nullptr;  // the last one
  int num_given_back_ = 0;       // of its bytes, to be read again
  int64_t num_read_ = 0;
};

/// Ends a callback method's call. gRPC's handlers of such methods answer UNIMPLEMENTED without a word to whatever they are told
/// of a message. Any type of message will do: none is read or written.
using Refusal = grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>;

enum class ServedBy { kThreads, kCallbacks };

/// Stands before a method's handler.
class BoundedHandler final : public MethodHandler {
 public:
  BoundedHandler(MethodHandler& handler, ServedBy served_by, const google::protobuf::Descriptor& type, int64_t most)
      : handler_(handler), served_by_(served_by), parsed_bytes_(type), most_(most) {}

  void* Deserialize(grpc_call* call, grpc_byte_buffer* message, grpc::Status* status, void** handler_data) override {
    if (fits(message)) return handler_.Deserialize(call, message, status, handler_data);
    const std::string num_bytes = std::to_string(grpc_byte_buffer_length(message));
    grpc_byte_buffer_destroy(message);
    if (served_by_ == ServedBy::kCallbacks)
      Refusal(nullptr).Deserialize(call, grpc_raw_byte_buffer_create(nullptr, 0), status, handler_data);
    const std::string most = std::to_string(most_);
    *status = {kRefused, "the message has " + num_bytes + " bytes and would take more than " + most +
                             " in memory once it is parsed; allowed: at most " + most};
    return nullptr;
  }

  void RunHandler(const HandlerParameter& call) override {
    if (served_by_ == ServedBy::kThreads || call.status.error_code() != kRefused) return handler_.RunHandler(call);
    const auto refuse = [&](grpc::CallbackServerContext* context, const grpc::ByteBuffer*, grpc::ByteBuffer*) {
      grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
      reactor->Finish(call.status);
      return reactor;
    };
    Refusal(refuse).RunHandler(
        {call.call, call.server_context, nullptr, grpc::Status::OK, call.internal_data, call.call_requester});
  }

 private:
  /// What no protobuf message is refused with.
  static constexpr grpc::StatusCode kRefused = grpc::StatusCode::RESOURCE_EXHAUSTED;

  bool fits(grpc_byte_buffer* message) const {
    if (message == nullptr) return true;  // the caller has sent none
    MessageBytes bytes(message);
    return parsed_bytes_.count(bytes, most_) <= most_;
  }

  MethodHandler& handler_;
  const ServedBy served_by_;
  const ParsedBytes parsed_bytes_;
  const int64_t most_;  // bytes
};

class BoundedService final : public grpc::Service {
 public:
  BoundedService(std::shared_ptr<grpc::Service> service, const ServiceDescriptor& descriptor, int64_t most)
      : service_(std::move(service)) {
    const ServedBy served_by = service_->has_callback_methods() ? ServedBy::kCallbacks : ServedBy::kThreads;
    FERRY_CHECK(!service_->has_async_methods() && !service_->has_generic_methods()) << descriptor.full_name();
    FERRY_CHECK(served_by == ServedBy::kThreads || !service_->has_synchronous_methods()) << descriptor.full_name();
    for (int m = 0; m < descriptor.method_count(); ++m)
      names_.push_back("/" + descriptor.full_name() + "/" + descriptor.method(m)->name());
    for (int m = 0; m < descriptor.method_count(); ++m) {
      const MethodDescriptor& method = *descriptor.method(m);
      FERRY_CHECK(!method.client_streaming()) << names_[static_cast<std::size_t>(m)] << " takes messages that nothing bounds";
      auto handler = std::make_unique<BoundedHandler>(handler_of(*service_, m), served_by, *method.input_type(), most);
      add(m, method.server_streaming() ? RpcMethod::SERVER_STREAMING : RpcMethod::NORMAL_RPC, served_by, std::move(handler));
    }
  }

 private:
  /// Derived classes may name the method, which then works on any service.
  static MethodHandler& handler_of(grpc::Service& service, int method) {
    return *(service.*(&BoundedService::GetHandler))(method);
  }

  void add(int method, RpcMethod::RpcType type, ServedBy served_by, std::unique_ptr<MethodHandler> handler) {
    const char* const name = names_[static_cast<std::size_t>(method)].c_str();
    MethodHandler* const at_once = served_by == ServedBy::kThreads ? handler.release() : nullptr;
    AddMethod(std::make_unique<RpcServiceMethod>(name, type, at_once).release());
    if (served_by == ServedBy::kCallbacks) MarkMethodCallback(method, handler.release());
  }

  const std::shared_ptr<grpc::Service> service_;
  std::vector<std::string> names_;  // of the methods, which have pointers to them
};

}  // namespace

std::shared_ptr<grpc::Service> bounded_service(std::shared_ptr<grpc::Service> service, const std::string& name, int64_t most) {
  const ServiceDescriptor* const descriptor = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
  FERRY_CHECK(descriptor != nullptr) << "there is no service " << name;
  return std::make_shared<BoundedService>(std::move(service), *descriptor, most);
}

}  // namespace ferry
