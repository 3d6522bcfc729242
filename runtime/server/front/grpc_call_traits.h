#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "runtime/server/front/call_traits.h"

namespace ferry {

/// What a front does with a gRPC method.
enum class MethodKind {
  kPrompt,       // has a prompt: goes where its beginning was
  kAbort,        // goes to all coordinators
  kCapture,      // is a coordinator's own affair, and refused
  kHealthCheck,  // of vLLM's service: for anybody, without a key
  kOther,        // goes to the least loaded coordinator
};

/// `method` as gRPC has it: "/ferry.v1.Inference/Generate".
MethodKind method_kind(const std::string& method);

/// Reads the prompt of a kPrompt method's message as far as it can be read, and not where its parts would take more than a few
/// times its bytes in memory (ParsedBytes): then it goes where anything goes. Its text is that of HTTP's requests, so that a
/// conversation is known on either port.
CallTraits grpc_call_traits(const std::string& method, const grpc::ByteBuffer& message);

/// Whether a kAbort method's answer says that there was such a request: of vLLM's services, whose answers say nothing, never.
bool says_found(const std::string& method, const grpc::ByteBuffer& answer);

}  // namespace ferry
