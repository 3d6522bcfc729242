#include "runtime/options/sharing_options.h"

#include "runtime/options/option_kinds.h"

namespace ferry {

void add_sharing_options(CLI::App& app, SharingOptions& o) {
  app.add_option(
         "--coordinators", o.coordinators,
         "how many of the job's ranks, the first ones, have requests, caches and ports of their own; the others work for "
         "all of them, and --http and --grpc spread requests over them; default 1")
      ->check(number_in(1, SharingOptions::kMaxCoordinators, "1 to 16"));
  add_wait_to_merge(app, o);
}

void add_wait_to_merge(CLI::App& app, SharingOptions& o) {
  using enum WaitToMerge;
  add_choice<WaitToMerge>(
      app, "--wait-to-merge", {{"auto", kAuto}, {"always", kAlways}, {"never", kNever}},
      [&o](WaitToMerge wait) { o.wait_to_merge = wait; },
      "whether a worker of several coordinators lets rows that decode wait for others of the same layer, which reads experts "
      "once "
      "for both: always, never, or auto, where it was measured to give more tokens/s; default auto");
}

}  // namespace ferry
