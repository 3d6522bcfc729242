#include "tests/sim/sim_newcomer.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/elastic/instructions.h"

namespace ferry::sim {
namespace {

constexpr std::chrono::milliseconds kCallPeriod{500};
constexpr std::chrono::milliseconds kCallTime{2};  // for both to prove the key
constexpr std::chrono::seconds kJoinTimeout{60};

}  // namespace

SimNewcomerRank::SimNewcomerRank(const SimNewcomer& plan, const Workload& workload, SimSite& site, VirtualTime& time, Rank rank,
                                 std::function<bool()> works_now)
    : plan_(plan),
      workload_(workload),
      site_(site),
      time_(time),
      rank_(rank),
      works_now_(std::move(works_now)),
      hub_(site.links(), rank, {}) {}

bool SimNewcomerRank::run() {
  sleep(plan_.comes_at);
  bool was_in = false;
  while (std::optional<SimSite::Visit> visit = call()) {
    was_in = true;
    if (!shelf_) open(*visit);
    holder_->begin_anew();
    link_ = hub_.adopt(visit->connection);
    server_->begin(visit->seat, *link_, *holder_);
    const std::optional<ExpertServer::Ended> ended = server_->serve(Deadline::max());
    link_.reset();
    const bool is_lost = ended->error && ended->error->code() != ErrorCode::kInternal;
    if (plan_.lingers && is_lost && !wants_to_leave()) continue;
    if (ended->error) throw Error(*ended->error);
    return true;
  }
  return was_in;
}

void SimNewcomerRank::sleep(Duration time) {
  const Deadline until = time_.now() + time;
  while (hub_.now() < until) time_.wait(rank_, until, [this] { return site_.is_killed(rank_); });
}

std::optional<SimSite::Visit> SimNewcomerRank::call() {
  for (const Deadline until = hub_.now() + kJoinTimeout; hub_.now() < until && !wants_to_leave(); sleep(kCallPeriod)) {
    sleep(kCallTime);
    if (std::optional<SimSite::Visit> visit = site_.knock(rank_)) return visit;
  }
  return {};
}

void SimNewcomerRank::open(const SimSite::Visit& visit) {
  const EngineOptions options = follow_instructions(workload_.newcomer_options(), visit.instructions);
  shelf_.emplace(options, RankPlace{.rank = visit.seat,
                                    .local_rank = 0,
                                    .cores = {.cores = 1, .is_coordinator = false, .has_workers = true, .ranks_on_cores = 2},
                                    .works_now = works_now_});
  check_instructions(visit.instructions, shelf_->terms(), visit.seat);
  holder_.emplace(*shelf_);
  server_.emplace(*shelf_, hub_,
                  ExpertServer::Options{.peer_timeout = to_milliseconds(options.peer_timeout_s),
                                        .clock_skew = {},
                                        .wants_to_leave = [this] { return wants_to_leave(); },
                                        .faults = {}});
}

}  // namespace ferry::sim
