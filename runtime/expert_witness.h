#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "moe/remote/canary_witness.h"
#include "runtime/model/expert_loader.h"

namespace ferry {

/// Reads experts from the checkpoint one by one and has each sing, on a thread of its own that gets little of cores which
/// others want, or where ranks take turns in take(). Nothing is read, and no thread made, before the first experts are asked
/// for; one is in memory at a time.
class ExpertWitness final : public CanaryWitness {
 public:
  struct Options {
    DType dtype = DType::kF32;              // of rows that come back from experts
    uint64_t voice = 0;                     // of the backend (voice_of)
    std::function<Backend()> make_backend;  // both on the witness's thread
    std::function<std::unique_ptr<ExpertLoader>(Matmul&)> make_loader;
    std::function<bool()> works_now = {};  // as of RankPlace: whether take() does the work; empty: a thread does
  };
  explicit ExpertWitness(Options options);
  /// Gives up what is under way.
  ~ExpertWitness() override;
  ExpertWitness(const ExpertWitness&) = delete;
  ExpertWitness& operator=(const ExpertWitness&) = delete;

  uint64_t voice() const override { return options_.voice; }
  void begin(std::vector<ExpertKey> experts) override;
  std::vector<Song> take() override;
  bool is_over() const override;
  void give_up() override;

 private:
  struct Voice;

  void run();
  void work(std::unique_lock<std::mutex>& lock);
  void sing_all(std::unique_lock<std::mutex>& lock);

  const Options options_;
  std::unique_ptr<Voice> voice_;  // of whoever sings, once it does
  mutable std::mutex mutex_;      // guards all below but thread_
  std::condition_variable wake_;
  uint64_t number_ = 0;  // of the experts that count
  std::vector<ExpertKey> experts_;
  std::size_t num_sung_ = 0;  // of these
  std::vector<Song> songs_;   // not taken yet
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace ferry
