#include "runtime/server/profile_service.h"

#include <grpcpp/grpcpp.h>

#include "ferry/v1/profile.grpc.pb.h"
#include "runtime/server/answered_call.h"
#include "runtime/server/profile_control.h"
#include "runtime/server/profile_request.h"

namespace ferry {
namespace {

class ProfileService final : public v1::Profile::Service {
 public:
  ProfileService(ProfileControl& control, const ApiKeys& keys) : control_(control), keys_(keys) {}

  grpc::Status Start(grpc::ServerContext* context, const v1::StartProfileRequest* request,
                     v1::StartProfileResponse* response) override {
    return answer_with(*context, keys_, [&] {
      TracePlan plan{.delay_steps = request->start_step(), .num_steps = request->num_steps()};
      plan.routing = request->routing();
      if (request->has_level()) plan.level = parse_trace_level(request->level());
      if (request->has_max_bytes()) plan.max_bytes = request->max_bytes();
      response->set_output_dir(control_.start(plan, request->output_dir()).string());
    });
  }

  grpc::Status Stop(grpc::ServerContext* context, const v1::StopProfileRequest* request,
                    v1::StopProfileResponse* response) override {
    return answer_with(*context, keys_, [&] { response->set_output_dir(control_.stop(request->wait()).string()); });
  }

  grpc::Status Save(grpc::ServerContext* context, const v1::SaveProfileRequest* request,
                    v1::SaveProfileResponse* response) override {
    return answer_with(*context, keys_,
                       [&] { response->set_output_dir(control_.save(request->output_dir(), request->wait()).string()); });
  }

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetProfileStatusRequest*,
                         v1::GetProfileStatusResponse* response) override {
    return answer_with(*context, keys_, [&] {
      const ProfileControl::Status status = control_.status();
      switch (status.state) {
        case ProfileControl::State::kIdle: response->set_state(v1::GetProfileStatusResponse::STATE_IDLE); break;
        case ProfileControl::State::kRecording: response->set_state(v1::GetProfileStatusResponse::STATE_RECORDING); break;
        case ProfileControl::State::kWriting: response->set_state(v1::GetProfileStatusResponse::STATE_WRITING); break;
      }
      response->set_output_dir(status.directory.string());
      response->set_error(status.error);
    });
  }

 private:
  ProfileControl& control_;
  const ApiKeys& keys_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_profile_service(ProfileControl& control, const ApiKeys& keys) {
  return std::make_shared<ProfileService>(control, keys);
}

}  // namespace ferry
