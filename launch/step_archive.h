#pragma once

#include <memory>

#include "runtime/coordinator.h"
#include "runtime/options/step_archive_options.h"
#include "runtime/trace/archive_keeper.h"

// `--trace-sample` of commands that answer requests: one step in many is kept, and all that stand out.

namespace ferry {

/// The archive of the steps of one job, nothing if none is wanted. To be opened before the weights are read, which takes long:
/// throws as ArchiveKeeper does. It must outlive the coordinator that it is given to.
std::unique_ptr<ArchiveKeeper> open_step_archive(const StepArchiveOptions& options);

/// From the next step on the coordinator's steps go there; `archive` may be null.
void keep_steps(Coordinator& coordinator, const StepArchiveOptions& options, ArchiveKeeper* archive);

}  // namespace ferry
