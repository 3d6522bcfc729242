#pragma once

#include <memory>

#include "runtime/cluster/coordinator_links.h"
#include "runtime/options/serve_options.h"
#include "runtime/server/access.h"
#include "runtime/server/front/front.h"

namespace ferry {

/// The front of a job with several coordinators, which all call this once their own ports are open: `given` is what the job was
/// asked for, of which the front has the ports, as `access` says. Of the first coordinator, null of others. Throws as Front and
/// CoordinatorLinks::gather() do.
std::unique_ptr<Front> open_job_front(const ServeOptions& given, const Access& access, CoordinatorLinks& others,
                                      const CoordinatorLinks::Ports& own);

}  // namespace ferry
