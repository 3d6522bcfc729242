#include "runtime/server/capture_source.h"

#include <utility>

#include "runtime/coordinator.h"
#include "runtime/engine.h"

namespace ferry {

void CoordinatorCaptures::start(const TracePlan& plan) {
  coordinator_.between_steps([&](Engine& engine) { engine.trace().start(plan); });
}

void CoordinatorCaptures::stop() {
  coordinator_.between_steps([](Engine& engine) { engine.trace().stop(); });
}

void CoordinatorCaptures::save_snapshot() {
  coordinator_.between_steps([](Engine& engine) { engine.trace().save_snapshot(); });
}

void CoordinatorCaptures::set_on_capture(std::function<void(Capture)> on_capture,
                                         std::function<void(const std::string&)> on_give_up) {
  coordinator_.set_on_capture(std::move(on_capture), std::move(on_give_up));
}

}  // namespace ferry
