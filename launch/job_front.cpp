#include "launch/job_front.h"

#include <chrono>
#include <utility>
#include <vector>

#include "runtime/base/timeout_factor.h"

namespace ferry {
namespace {

constexpr std::chrono::minutes kGatherTimeout{2};  // for the slowest to open its ports, when all have loaded

}  // namespace

std::unique_ptr<Front> open_job_front(const ServeOptions& given, const Access& access, CoordinatorLinks& others,
                                      const CoordinatorLinks::Ports& own) {
  std::vector<CoordinatorLinks::Ports> ports =
      others.gather(own, std::chrono::steady_clock::now() + scaled_timeout(kGatherTimeout));
  if (!others.is_first()) return nullptr;
  FrontOptions options{.http_address = given.http_address,
                       .grpc_address = given.grpc_address,
                       .drain_timeout_s = given.drain_timeout_s,
                       .access = given.access,
                       .limits = given.limits};
  for (CoordinatorLinks::Ports& coordinator : ports)
    options.coordinators.push_back({.http = std::move(coordinator.http), .grpc = std::move(coordinator.grpc)});
  return std::make_unique<Front>(options, access);
}

}  // namespace ferry
