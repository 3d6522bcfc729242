#include "runtime/expert_witness.h"

#include <cstdio>
#include <utility>

#include "kernels/stream.h"
#include "profiler/recorder.h"
#include "runtime/base/error.h"
#include "runtime/base/step_back.h"
#include "runtime/base/thread_pool.h"
#include "runtime/expert_canary.h"

namespace ferry {

/// What its thread reads and computes with.
struct ExpertWitness::Voice {
  explicit Voice(const Options& options)
      : pool(1),
        backend(options.make_backend()),
        stream(backend, pool),
        loader(options.make_loader(backend.matmul())),
        canary(loader->dims(), loader->weight_type(), options.dtype, stream) {}

  /// Of a layer that has no experts, as a dense one among others, 0, as who prepares them says.
  uint64_t sing(const ExpertKey& key) {
    if (!loader->has_experts(key.first)) return 0;
    loader->require_memory(loader->packed_bytes(key.first), "an expert to compare with a worker's");
    return canary.sing(*loader->load(key.first, LogicalExpertId{key.second}));
  }

  ThreadPool pool;
  Backend backend;
  Stream stream;
  std::unique_ptr<ExpertLoader> loader;
  ExpertCanary canary;
};

ExpertWitness::ExpertWitness(Options options) : options_(std::move(options)) {}

ExpertWitness::~ExpertWitness() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
    ++number_;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ExpertWitness::begin(std::vector<ExpertKey> experts) {
  const std::scoped_lock lock(mutex_);
  ++number_;
  experts_ = std::move(experts);
  num_sung_ = 0;
  songs_.clear();
  if (!options_.works_now && !thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {  // then it says nothing
      experts_.clear();
    }
  }
  wake_.notify_all();
}

std::vector<CanaryWitness::Song> ExpertWitness::take() {
  std::unique_lock lock(mutex_);
  if (options_.works_now && num_sung_ < experts_.size() && options_.works_now()) work(lock);
  return std::exchange(songs_, {});
}

bool ExpertWitness::is_over() const {
  const std::scoped_lock lock(mutex_);
  return num_sung_ == experts_.size();
}

void ExpertWitness::give_up() {
  const std::scoped_lock lock(mutex_);
  ++number_;
  experts_.clear();
  num_sung_ = 0;
  songs_.clear();
}

void ExpertWitness::run() {
  recorder().register_thread("witness");
  step_back();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_ending_ || num_sung_ < experts_.size(); });
    if (is_ending_) return;
    work(lock);
  }
}

/// What there is to sing, without the lock. One that cannot read its checkpoint, or has no memory for it, is no witness any
/// more of what was asked.
void ExpertWitness::work(std::unique_lock<std::mutex>& lock) {
  const uint64_t number = number_;
  try {
    if (!voice_) {
      lock.unlock();
      voice_ = std::make_unique<Voice>(options_);
      lock.lock();
    }
    sing_all(lock);
  } catch (const std::exception& error) {  // not only Error: memory may run out
    if (!lock.owns_lock()) lock.lock();
    if (number != number_) return;
    std::fprintf(stderr, "ferry: no word on experts that no worker has had: %s\n", one_line(error.what()).c_str());
    experts_.clear();
    num_sung_ = 0;
  }
}

/// Until all are sung, or others count.
void ExpertWitness::sing_all(std::unique_lock<std::mutex>& lock) {
  const uint64_t number = number_;
  while (number == number_ && num_sung_ < experts_.size()) {
    const ExpertKey key = experts_[num_sung_];
    lock.unlock();
    const uint64_t canary = voice_->sing(key);
    lock.lock();
    if (number != number_) return;
    songs_.push_back({key, canary});
    ++num_sung_;
  }
}

}  // namespace ferry
