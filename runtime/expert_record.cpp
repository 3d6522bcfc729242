#include "runtime/expert_record.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include "moe/placement/load_file.h"
#include "runtime/base/error.h"
#include "runtime/base/pending_file.h"
#include "runtime/base/text_file.h"

namespace ferry {
namespace {

constexpr std::chrono::minutes kLoadFilePeriod{3};  // between two times that it is written

}  // namespace

ExpertLoads join_loads(const std::optional<ExpertLoads>& earlier, const ExpertLoads& own, double max_steps) {
  if (!earlier || earlier->num_steps <= 0) return own;
  const double share = std::clamp((max_steps - own.num_steps) / earlier->num_steps, 0.0, 1.0);
  ExpertLoads joined = own;
  joined.num_steps += share * earlier->num_steps;
  for (std::size_t i = 0; i < joined.rows.size(); ++i) {
    joined.rows[i] += share * earlier->rows[i];
    joined.touched[i] += share * earlier->touched[i];
  }
  return joined;
}

ExpertLoads fit_loads(ExpertLoads loads, const LoadShape& shape, const std::string& name) {
  const bool is_alike = loads.num_layers == shape.num_layers || loads.num_layers == shape.num_layers + 1;
  if (!is_alike || loads.num_experts != shape.num_experts) {
    throw_invalid(name + ": loads of " + std::to_string(loads.num_layers) + " layers with " +
                  std::to_string(loads.num_experts) + " experts; allowed: the model's " + std::to_string(shape.num_layers) +
                  " (with drafts one more) with " + std::to_string(shape.num_experts));
  }
  loads.num_layers = shape.num_layers + (shape.has_drafts ? 1 : 0);
  const auto size = static_cast<std::size_t>(loads.num_layers * loads.num_experts);
  loads.rows.resize(size, 0);
  loads.touched.resize(size, 0);
  return loads;
}

ExpertRecord::ExpertRecord(const ExpertPlacement& placement, const ExpertLoad& load)
    : windows_({.num_layers = load.num_layers(),
                .num_experts = std::max<int64_t>(load.num_experts(), 1),
                .steps_per_window = kStepsPerWindow,
                .num_windows = kNumWindows}),
      placed_{.placement = std::make_shared<const ExpertPlacement>(placement)} {}

void ExpertRecord::take(const ExpertPlacement& placement, const ExpertLoad& load) {
  const std::scoped_lock lock(mutex_);
  for (int64_t l = 0; l < load.num_layers() && load.num_experts() > 0; ++l) windows_.add_layer(l, load.layer(l));
  windows_.end_step();
  if (placement.epoch() != placed_.placement->epoch()) placed_.placement = std::make_shared<const ExpertPlacement>(placement);
}

void ExpertRecord::note_placement(const ExpertPlacement& placement, PlacedBy by) {
  const std::scoped_lock lock(mutex_);
  placed_ = {.placement = std::make_shared<const ExpertPlacement>(placement), .by = by};
}

ExpertLoads ExpertRecord::loads() const {
  const std::scoped_lock lock(mutex_);
  return windows_.loads();
}

ExpertRecord::Placed ExpertRecord::placed() const {
  const std::scoped_lock lock(mutex_);
  return placed_;
}

ExpertLoadFile::ExpertLoadFile(std::filesystem::path path, const LoadShape& shape) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    const std::string name = path_.string();
    earlier_ = fit_loads(read_expert_loads(read_text_file(path_, kLoadFileBytesMax), name), shape, name);
  } else {  // now rather than after hours: whether it can be
    PendingFile file(path_);
  }
}

void ExpertLoadFile::follow(const ExpertRecord& record) {
  record_ = &record;
  thread_ = std::thread([this] { run(); });
}

ExpertLoadFile::~ExpertLoadFile() {
  if (record_ == nullptr) return;
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  thread_.join();
  try_to_write();
}

void ExpertLoadFile::write() {
  constexpr auto kMaxSteps = static_cast<double>(ExpertRecord::kStepsPerWindow * ExpertRecord::kNumWindows);
  const std::string text = write_expert_loads(join_loads(earlier_, record_->loads(), kMaxSteps));
  PendingFile file(path_);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void ExpertLoadFile::run() {
  pthread_setname_np(pthread_self(), "expert load");
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kLoadFilePeriod, [this] { return is_over_; })) {
    lock.unlock();
    try_to_write();
    lock.lock();
  }
}

/// A run goes on without.
void ExpertLoadFile::try_to_write() {
  try {
    write();
  } catch (const std::exception& error) {  // not only Error: memory may run out
    std::fprintf(stderr, "ferry: warning: --expert-load: %s\n", one_line(error.what()).c_str());
  }
}

}  // namespace ferry
