#include "runtime/server/vllm/abort_requests.h"

#include "runtime/server/caller.h"

namespace ferry::vllm {
namespace {

constexpr int kAbortsMax = 1024;  // of one call

}  // namespace

grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext& context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

grpc::ServerUnaryReactor* abort_requests(grpc::CallbackServerContext& context, const ServiceContext& service,
                                         const google::protobuf::RepeatedPtrField<std::string>& ids) {
  const Caller caller = identify_caller(context, service.keys);
  if (!caller.status.ok()) return answer(context, caller.status);
  if (ids.size() > kAbortsMax) {
    return answer(context, {grpc::StatusCode::INVALID_ARGUMENT, "request_ids has " + std::to_string(ids.size()) +
                                                                    " ids; allowed: at most " + std::to_string(kAbortsMax)});
  }
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i].empty()) {
      return answer(context, {grpc::StatusCode::INVALID_ARGUMENT,
                              "request_ids[" + std::to_string(i) + "] is empty; allowed: names of requests"});
    }
  }
  for (const std::string& id : ids) service.calls.abort(caller.owner, id);
  return answer(context, grpc::Status::OK);
}

}  // namespace ferry::vllm
