#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "moe/assignment.h"
#include "moe/expert_bank.h"
#include "runtime/expert_shelf.h"

namespace ferry {

/// Experts of a rank with their ids.
struct HeldExperts {
  const RankExperts& experts;
  const ExpertBank& bank;
};
/// An expert that a rank will hold or holds. Throws Error{kInternal} if it is neither.
const PackedExpert& find_expert(const HeldExperts& next, const HeldExperts& now, int64_t layer, LogicalExpertId expert);

/// Makes ready what a worker is to hold next while it goes on with what it holds: on a thread of its own, which gets little of
/// cores that others want, or where ranks take turns in take(). Experts that stay are shared, others read from the checkpoint.
///
/// Used by one thread.
class ExpertPreparer {
 public:
  struct Options {
    DType dtype = DType::kF32;              // of rows that come back from experts
    std::function<Backend()> make_backend;  // what computes canaries, on the preparer's thread; empty: they are the caller's
    std::function<bool()> works_now = {};   // as of RankPlace: whether take() does the work; empty: a thread does
  };
  /// `shelf` outlives this. Throws Error{kResourceExhausted} if no thread can be had.
  ExpertPreparer(ExpertShelf& shelf, Options options);
  /// Gives up what is under way.
  ~ExpertPreparer();
  ExpertPreparer(const ExpertPreparer&) = delete;
  ExpertPreparer& operator=(const ExpertPreparer&) = delete;

  /// Begins anew; what was under way, or not taken, is given up. `held` is what `bank` has, by place.
  void begin(Assignment assignment, std::shared_ptr<const ExpertBank> bank, RankExperts held);
  /// What is under way, or not taken, does not count any more.
  void give_up();
  /// Whether something is under way, or not taken.
  bool is_busy() const;

  struct Prepared {
    Assignment assignment;
    std::shared_ptr<const ExpertBank> bank;  // null: it cannot be
    Preparation preparation;                 // without canaries where there is no backend
  };
  /// What has become of it, once.
  std::optional<Prepared> take();

 private:
  struct Job {
    Assignment assignment;
    std::shared_ptr<const ExpertBank> bank;
    RankExperts held;
  };

  void run();
  void work(std::unique_lock<std::mutex>& lock);
  Prepared prepare(const Job& job, uint64_t number);
  void sing(const Job& job, const ExpertBank& bank, uint64_t number, Preparation& preparation);
  bool is_given_up(uint64_t number) const;

  ExpertShelf& shelf_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  uint64_t number_ = 0;  // of the job that counts; any other is given up
  std::optional<Job> job_;
  std::optional<Prepared> done_;
  bool is_busy_ = false;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace ferry
