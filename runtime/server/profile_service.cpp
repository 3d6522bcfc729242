#include "runtime/server/profile_service.h"

#include <grpcpp/grpcpp.h>

#include <exception>

#include "ferry/v1/profile.grpc.pb.h"
#include "runtime/server/profile_control.h"
#include "runtime/server/status.h"

namespace ferry {
namespace {

/// Runs `answer` and turns what it throws into a status.
template <class Answer>
grpc::Status answer_with(Answer&& answer) {
  try {
    answer();
    return grpc::Status::OK;
  } catch (const Error& error) {
    return to_status(error);
  } catch (const std::exception& error) {
    return {grpc::StatusCode::INTERNAL, error.what()};
  }
}

class ProfileService final : public v1::Profile::Service {
 public:
  explicit ProfileService(ProfileControl& control) : control_(control) {}

  grpc::Status Start(grpc::ServerContext*, const v1::StartProfileRequest* request,
                     v1::StartProfileResponse* response) override {
    return answer_with([&] {
      TracePlan plan{.delay_steps = request->start_step(), .num_steps = request->num_steps()};
      if (request->has_level()) plan.level = parse_trace_level(request->level());
      if (request->has_max_bytes()) plan.max_bytes = request->max_bytes();
      response->set_output_dir(control_.start(plan, request->output_dir()).string());
    });
  }

  grpc::Status Stop(grpc::ServerContext*, const v1::StopProfileRequest* request, v1::StopProfileResponse* response) override {
    return answer_with([&] { response->set_output_dir(control_.stop(request->wait()).string()); });
  }

  grpc::Status Save(grpc::ServerContext*, const v1::SaveProfileRequest* request, v1::SaveProfileResponse* response) override {
    return answer_with([&] { response->set_output_dir(control_.save(request->output_dir(), request->wait()).string()); });
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetProfileStatusRequest*,
                         v1::GetProfileStatusResponse* response) override {
    const ProfileControl::Status status = control_.status();
    switch (status.state) {
      case ProfileControl::State::kIdle: response->set_state(v1::GetProfileStatusResponse::STATE_IDLE); break;
      case ProfileControl::State::kRecording: response->set_state(v1::GetProfileStatusResponse::STATE_RECORDING); break;
      case ProfileControl::State::kWriting: response->set_state(v1::GetProfileStatusResponse::STATE_WRITING); break;
    }
    response->set_output_dir(status.directory.string());
    response->set_error(status.error);
    return grpc::Status::OK;
  }

 private:
  ProfileControl& control_;
};

}  // namespace

std::shared_ptr<grpc::Service> make_profile_service(ProfileControl& control) {
  return std::make_shared<ProfileService>(control);
}

}  // namespace ferry
