#include "runtime/server/front/coordinator_probe.h"

#include <future>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/quoting.h"
#include "runtime/server/http/http_client.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kShortestPeriod{50};  // between looks that there is reason for
constexpr std::size_t kShownBytes = 300;                  // of what a coordinator says

struct Sight {
  int status = 0;      // 0: there was no answer
  std::string reason;  // what it says, or why there was none
};

/// One GET /health.
class Look final : public ExchangeHearer {
 public:
  std::future<Sight> sight() { return promise_.get_future(); }

  void on_head(HttpAnswerHead head) override { sight_.status = head.status; }
  void on_piece(std::string_view piece) override {
    sight_.reason.append(piece.substr(0, kShownBytes - std::min(kShownBytes, sight_.reason.size())));
  }
  bool is_full() override { return false; }
  void on_end(ExchangeEnd end, const std::string& reason) override {
    if (end != ExchangeEnd::kWhole) sight_ = {.status = 0, .reason = reason};
    promise_.set_value(std::move(sight_));
  }

 private:
  Sight sight_;
  std::promise<Sight> promise_;
};

}  // namespace

CoordinatorProbe::CoordinatorProbe(CoordinatorPool& pool, HttpClient& client, const FrontMark& mark, ProbeTimes times,
                                   std::function<void()> on_look)
    : pool_(pool),
      client_(client),
      mark_(mark),
      times_(times),
      on_look_(std::move(on_look)),
      last_answers_(pool.size(), Clock::now()) {
  pool_.set_on_suspicion([this] { hurry(); });
  look();
  thread_ = std::thread([this] { run(); });
}

CoordinatorProbe::~CoordinatorProbe() {
  pool_.set_on_suspicion({});
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
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
    const Clock::time_point begin = Clock::now();
    changed_.wait_until(lock, begin + std::min(kShortestPeriod, times_.period), [&] { return is_leaving_; });
    changed_.wait_until(lock, begin + times_.period, [&] { return is_leaving_ || is_hurried_; });
    if (is_leaving_) return;
    is_hurried_ = false;
    lock.unlock();
    look();
    lock.lock();
  }
}

void CoordinatorProbe::look() {
  std::vector<std::pair<std::shared_ptr<HttpExchange>, std::future<Sight>>> looks;
  for (std::size_t i = 0; i < pool_.size(); ++i) {
    const auto look = std::make_shared<Look>();
    std::future<Sight> sight = look->sight();
    HttpQuestion question{.address = pool_.address(i).http, .path = "/health", .headers = {{FrontMark::kName, mark_.value()}}};
    looks.emplace_back(client_.start(std::move(question), look), std::move(sight));
  }
  const Clock::time_point deadline = Clock::now() + times_.deadline;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    auto& [exchange, future] = looks[i];
    const bool is_late = future.wait_until(deadline) != std::future_status::ready;
    if (is_late) exchange->cancel();
    const Sight sight = is_late ? Sight{.status = 0, .reason = "it did not answer in time"} : future.get();
    const Clock::time_point now = Clock::now();
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
