#include "runtime/server/front/coordinator_probe.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/quoting.h"
#include "runtime/server/http/http_client.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kShortestPeriod{50};  // between looks that there is reason for
constexpr std::size_t kShownBytes = 300;                  // of what a coordinator says

}  // namespace

/// One GET /health.
class HealthLook final : public ExchangeHearer {
 public:
  struct Sight {
    int status = 0;      // 0: there was no answer
    std::string reason;  // what it says, or why there was none
  };

  /// Returns the answer, or nothing if `clock` reads `deadline` or give_up() is called first.
  std::optional<Sight> wait(Clock& clock, Clock::Time deadline) {
    std::unique_lock lock(mutex_);
    clock.wait_until(lock, ended_, deadline, [this] { return has_ended_ || is_given_up_; });
    if (!has_ended_) return std::nullopt;
    return sight_;
  }
  void give_up() {
    const std::scoped_lock lock(mutex_);
    is_given_up_ = true;
    ended_.notify_all();
  }
  bool is_given_up() {
    const std::scoped_lock lock(mutex_);
    return is_given_up_;
  }

  void on_head(HttpAnswerHead head) override { sight_.status = head.status; }
  void on_piece(std::string_view piece) override {
    sight_.reason.append(piece.substr(0, kShownBytes - std::min(kShownBytes, sight_.reason.size())));
  }
  bool is_full() override { return false; }
  void on_end(ExchangeEnd end, const std::string& reason) override {
    const std::scoped_lock lock(mutex_);
    if (end != ExchangeEnd::kWhole) sight_ = {.status = 0, .reason = reason};
    has_ended_ = true;
    ended_.notify_all();
  }

 private:
  Sight sight_;  // of the client's thread until it has ended
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false, is_given_up_ = false;  // guarded by the mutex
};

CoordinatorProbe::CoordinatorProbe(CoordinatorPool& pool, HttpClient& client, const FrontMark& mark, ProbeTimes times,
                                   std::function<void()> on_look, Clock& clock)
    : pool_(pool),
      client_(client),
      mark_(mark),
      times_(times),
      on_look_(std::move(on_look)),
      clock_(clock),
      last_answers_(pool.size(), clock.now()) {
  pool_.set_on_suspicion([this] { hurry(); });
  look();
  thread_ = std::thread([this] { run(); });
}

CoordinatorProbe::~CoordinatorProbe() {
  pool_.set_on_suspicion({});
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
    for (const auto& [exchange, look] : looks_) look->give_up();
  }
  changed_.notify_all();
  thread_.join();
}

void CoordinatorProbe::hurry() {
  const std::scoped_lock lock(mutex_);
  is_hurried_ = true;
  changed_.notify_all();
}

void CoordinatorProbe::run() {
  std::unique_lock lock(mutex_);
  while (!is_leaving_) {
    const Clock::Time begin = clock_.now();
    clock_.wait_until(lock, changed_, begin + std::min(kShortestPeriod, times_.period), [&] { return is_leaving_; });
    clock_.wait_until(lock, changed_, begin + times_.period, [&] { return is_leaving_ || is_hurried_; });
    if (is_leaving_) return;
    is_hurried_ = false;
    lock.unlock();
    look();
    lock.lock();
  }
}

/// Looks that are given up at once if this leaves.
CoordinatorProbe::Looks CoordinatorProbe::begin_looks() {
  Looks looks;
  for (std::size_t i = 0; i < pool_.size(); ++i) {
    const auto look = std::make_shared<HealthLook>();
    HttpQuestion question{.address = pool_.address(i).http, .path = "/health", .headers = {{FrontMark::kName, mark_.value()}}};
    looks.emplace_back(client_.start(std::move(question), look), look);
  }
  const std::scoped_lock lock(mutex_);
  looks_ = looks;
  if (is_leaving_) {
    for (const auto& [exchange, look] : looks) look->give_up();
  }
  return looks;
}

void CoordinatorProbe::look() {
  const Looks looks = begin_looks();
  const Clock::Time deadline = clock_.now() + times_.deadline;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const auto& [exchange, look] = looks[i];
    const std::optional<HealthLook::Sight> seen = look->wait(clock_, deadline);
    if (!seen) exchange->cancel();
    if (look->is_given_up()) continue;
    const HealthLook::Sight sight = seen.value_or(HealthLook::Sight{.status = 0, .reason = "it did not answer in time"});
    const Clock::Time now = clock_.now();
    if (sight.status != 0) last_answers_[i] = now;
    const CoordinatorState state = sight.status == 200 ? CoordinatorState::kServing
                                   : sight.status != 0 ? CoordinatorState::kRefusing
                                                       : CoordinatorState::kDown;
    pool_.set_state(i, state, state == CoordinatorState::kServing ? "" : one_line(sight.reason));
    if (now - last_answers_[i] >= times_.lost_after) pool_.give_up_calls(i);
  }
  on_look_();
}

}  // namespace ferry
