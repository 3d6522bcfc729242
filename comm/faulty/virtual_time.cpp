#include "comm/faulty/virtual_time.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {

RankThreads::RankThreads(int count) {
  for (int r = 0; r < count; ++r) {
    threads_.push_back(std::make_unique<RankThread>());
    RankThread& self = *threads_.back();
    self.thread = std::thread([&self] { run_tasks(self); });
  }
}

RankThreads::~RankThreads() {
  for (const auto& rank : threads_) {
    rank->task = {};
    rank->turn.release();
    rank->thread.join();
  }
}

void RankThreads::run_tasks(RankThread& self) {
  while (true) {
    self.turn.acquire();
    if (!self.task) return;
    self.task();
  }
}

VirtualTime::VirtualTime(RankThreads& threads, int num_ranks, uint64_t seed, Duration limit)
    : threads_(threads),
      random_(seed),
      start_(std::chrono::steady_clock::now()),
      limit_(limit),
      now_(start_),
      ranks_(static_cast<std::size_t>(num_ranks)) {
  FERRY_CHECK_LE(num_ranks, threads.size());
}

void VirtualTime::at(Deadline time, std::function<void()> event) {
  events_.push({std::max(time, now_), num_events_++, std::move(event)});
}

bool VirtualTime::wait(Rank self, Deadline deadline, const std::function<bool()>& is_ready) {
  const auto idx = static_cast<std::size_t>(self.value);
  Waiter& waiter = ranks_[idx];
  if (waiter.stopped_until <= now_ && is_ready()) return true;
  waiter.deadline = deadline;
  waiter.is_ready = &is_ready;
  const std::size_t next = find_next();
  if (next != idx) {
    threads_.threads_[next]->turn.release();
    threads_.threads_[idx]->turn.acquire();
  }
  waiter.is_ready = nullptr;
  return is_ready();
}

void VirtualTime::stop_rank(Rank rank, Deadline until) {
  Deadline& stopped_until = ranks_[static_cast<std::size_t>(rank.value)].stopped_until;
  stopped_until = std::max(stopped_until, until);
}

void VirtualTime::collect_candidates() {
  candidates_.clear();
  next_wake_ = Deadline::max();
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Waiter& rank = ranks_[r];
    if (rank.is_done) continue;
    if (rank.stopped_until > now_) {
      next_wake_ = std::min(next_wake_, rank.stopped_until);
    } else if (rank.is_ready == nullptr || rank.deadline <= now_ || (*rank.is_ready)()) {
      candidates_.push_back(r);
    } else {
      next_wake_ = std::min(next_wake_, rank.deadline);
    }
  }
}

void VirtualTime::run_next_event() {
  now_ = std::max(now_, events_.top().time);
  const std::function<void()> call = events_.top().call;
  events_.pop();
  call();
}

std::size_t VirtualTime::find_next() {
  while (true) {
    collect_candidates();
    if (!candidates_.empty()) return candidates_[static_cast<std::size_t>(random_.below(std::ssize(candidates_)))];
    const bool event_first = !events_.empty() && events_.top().time <= next_wake_;
    FERRY_CHECK(event_first || next_wake_ != Deadline::max()) << "every rank waits for ever";
    if (event_first) {
      run_next_event();
    } else {
      now_ = next_wake_;
    }
    FERRY_CHECK(elapsed() <= limit_) << "the run is not over after " << elapsed().count() << " ns";
  }
}

void VirtualTime::finish(std::size_t rank) {
  ranks_[rank].is_done = true;
  if (std::ranges::all_of(ranks_, &Waiter::is_done)) {
    threads_.all_done_.release();
  } else {
    threads_.threads_[find_next()]->turn.release();
  }
}

void VirtualTime::run(const std::function<void(Rank)>& body) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    threads_.threads_[r]->task = [this, &body, r] {
      body(Rank{static_cast<int>(r)});
      finish(r);
    };
  }
  threads_.threads_[find_next()]->turn.release();
  threads_.all_done_.acquire();
}

}  // namespace ferry
