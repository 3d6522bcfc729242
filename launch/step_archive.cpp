#include "launch/step_archive.h"

#include "runtime/engine.h"

namespace ferry {

std::unique_ptr<ArchiveKeeper> open_step_archive(const StepArchiveOptions& options) {
  if (options.trace_sample == 0) return nullptr;
  return std::make_unique<ArchiveKeeper>(*options.trace_dir / "archive", options.max_bytes());
}

void keep_steps(Coordinator& coordinator, const StepArchiveOptions& options, ArchiveKeeper* archive) {
  if (archive == nullptr) return;
  coordinator.set_step_sink(archive);
  coordinator.between_steps([&](Engine& engine) { engine.trace().sample_steps(options.trace_sample); });
}

}  // namespace ferry
