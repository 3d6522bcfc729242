#include "runtime/trace/archive_keeper.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kPeriod{500};
constexpr int kKeeperNice = 10;             // files give way to steps
constexpr int64_t kComplaintPeriod = 3600;  // seconds

int64_t time_of_day_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}
int64_t time_of_day_s() { return time_of_day_ns() / 1'000'000'000; }

}  // namespace

ArchiveKeeper::ArchiveKeeper(const std::filesystem::path& folder, int64_t max_bytes, Clock& clock)
    : clock_(clock), archive_(folder, max_bytes, time_of_day_ns()), history_(read_history(folder)) {
  lengths_.reserve(kMaxSteps);
  kept_.reserve(kMaxKept);
  status_.num_kept = std::ssize(archive_.entries());
  status_.num_bytes = archive_.num_bytes();
  written_minute_ = time_of_day_s() / 60;
  thread_ = std::thread([this] { run(); });
}

ArchiveKeeper::~ArchiveKeeper() {
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
  }
  leave_.notify_all();
  thread_.join();
}

void ArchiveKeeper::add_step(const StepFacts& facts) {
  const StepKind kind = kind_of(facts);
  const std::scoped_lock lock(mutex_);
  if (lengths_.size() < kMaxSteps) lengths_.push_back({.kind = kind, .seconds = facts.seconds});
}

void ArchiveKeeper::add_kept_step(KeptStep kept) {
  const std::scoped_lock lock(mutex_);
  const auto why = static_cast<std::size_t>(kept.why);
  if (num_waiting_[why] < (kept.why == KeptFor::kSample ? kMaxSamples : kMaxOfOthers)) {
    ++num_waiting_[why];
    kept_.push_back(std::move(kept));
  } else {
    ++num_left_out_[why];
    ++status_.num_left_out;
  }
}

void ArchiveKeeper::add_left_out(const CountsByReason& counts) {
  const std::scoped_lock lock(mutex_);
  for (std::size_t why = 0; why < counts.size(); ++why) {
    num_left_out_[why] += counts[why];
    status_.num_left_out += counts[why];
  }
}

ArchiveStatus ArchiveKeeper::status() const {
  const std::scoped_lock lock(mutex_);
  return status_;
}

void ArchiveKeeper::run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kKeeperNice);
  std::vector<Length> lengths;
  std::vector<KeptStep> kept;
  lengths.reserve(kMaxSteps);
  kept.reserve(kMaxKept);
  for (bool is_leaving = false; !is_leaving;) {
    CountsByReason left_out{};
    {
      std::unique_lock lock(mutex_);
      clock_.wait_for(lock, leave_, kPeriod, [this] { return is_leaving_; });
      is_leaving = is_leaving_;
      std::swap(lengths, lengths_);
      std::swap(kept, kept_);
      std::swap(left_out, num_left_out_);
      num_waiting_ = {};
    }
    try {
      tell_left_out(left_out);
      count(lengths);
      write(kept);
      if (is_leaving || time_of_day_s() / 60 != written_minute_) keep_minute();
    } catch (const std::exception& error) {  // not only Error: memory may run out
      complain(error.what());
    }
    lengths.clear();
    kept.clear();
  }
}

void ArchiveKeeper::count(const std::vector<Length>& lengths) {
  const int64_t now_s = time_of_day_s();
  for (const Length& length : lengths) {
    history_.add(length.kind, length.seconds, now_s);
    drift_.add(length.kind, length.seconds, now_s);
  }
}

void ArchiveKeeper::tell_left_out(const CountsByReason& left_out) {
  const int64_t now_s = time_of_day_s();
  for (std::size_t why = 0; why < left_out.size(); ++why)
    history_.add_left_out(static_cast<KeptFor>(why), left_out[why], now_s);
  const std::string text = counts_text(left_out);
  if (text.empty() || has_told_left_out_) return;
  has_told_left_out_ = true;
  std::fprintf(stderr,
               "ferry: warning: steps to be kept come too fast: in half a second %s were left out; allowed: one at a time from "
               "all ranks, and up to %d samples and %d for each other reason; ferry trace archive tells of later ones\n",
               text.c_str(), static_cast<int>(kMaxSamples), static_cast<int>(kMaxOfOthers));
}

void ArchiveKeeper::write(std::vector<KeptStep>& kept) {
  int64_t num_failed = 0;
  for (const KeptStep& step : kept) {
    try {
      archive_.add(step, time_of_day_ns());
    } catch (const std::exception& error) {
      ++num_failed;
      complain(error.what());
    }
  }
  const std::scoped_lock lock(mutex_);
  status_.num_kept = std::ssize(archive_.entries());
  status_.num_bytes = archive_.num_bytes();
  status_.num_left_out += num_failed;
}

/// Once a minute, and at the end.
void ArchiveKeeper::keep_minute() {
  const int64_t now_s = time_of_day_s();
  written_minute_ = now_s / 60;
  history_.forget(now_s);
  const StepDrift drift = drift_.look(history_, now_s);
  {
    const std::scoped_lock lock(mutex_);
    status_.drift = drift;
  }
  write_history(archive_.folder(), history_, now_s);
}

void ArchiveKeeper::complain(const char* what) {
  const int64_t now_s = time_of_day_s();
  if (now_s < complained_s_ + kComplaintPeriod) return;
  complained_s_ = now_s;
  std::fprintf(stderr, "ferry: warning: the archive of steps: %s; serving goes on without it\n", one_line(what).c_str());
}

}  // namespace ferry
