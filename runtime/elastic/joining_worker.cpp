#include "runtime/elastic/joining_worker.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "comm/rendezvous/join.h"
#include "comm/stream/stream_hub.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/fingerprint.h"
#include "runtime/cluster/exit_guard.h"
#include "runtime/cluster/handshake.h"
#include "runtime/elastic/door.h"
#include "runtime/elastic/instructions.h"
#include "runtime/elastic/join_key.h"
#include "runtime/expert_server.h"

namespace ferry {
namespace {

/// Termination signals, which are blocked: whether one has come.
class LeaveSignals {
 public:
  LeaveSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
  }
  /// Every further one ends the process at once.
  bool has_come() {
    const timespec now{};
    while (sigtimedwait(&set_, nullptr, &now) > 0) {
      if (has_come_) exit_now(EXIT_FAILURE, "ferry: asked to leave a second time: leaves at once");
      has_come_ = true;
      std::fprintf(stderr, "ferry: leaves when others have its experts\n");
    }
    return has_come_;
  }

 private:
  sigset_t set_{};
  bool has_come_ = false;
};

class JoiningWorker {
 public:
  JoiningWorker(const EngineOptions& options, const JoinOptions& join)
      : options_(options),
        join_(join),
        key_(read_join_key(join.key_file)),
        introduction_(encode_report({.complaint = {},
                                     .terms = introduction_terms(checkpoint_fingerprint(Checkpoint::open(options.model))),
                                     .place = {}})) {}

  int run() {
    Joined joined = meet(join_.join_timeout_s);
    while (true) {
      try {
        work(std::move(joined));
        if (join_.linger_s == 0 || signals_.has_come()) return EXIT_SUCCESS;
        std::fprintf(stderr, "ferry: rank %d was sent home; waits for another coordinator\n", check_context().rank);
      } catch (const Error& error) {
        const bool is_lost = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kDeadlineExceeded;
        if (!is_lost || join_.linger_s == 0 || signals_.has_come()) throw;
        std::fprintf(stderr, "ferry: rank %d: %s; waits for another coordinator\n", check_context().rank,
                     one_line(error.what()).c_str());
      }
      std::optional<Joined> next = meet_again();
      if (!next) return EXIT_SUCCESS;
      joined = std::move(*next);
    }
  }

 private:
  Joined meet(double seconds) {
    const uint64_t incarnation = std::random_device{}();
    return ferry::join(join_.address, key_, incarnation, introduction_, std::chrono::steady_clock::now() + to_milliseconds(seconds));
  }

  /// In pieces, between which it looks for signals. Nothing if nobody came, or it is to leave.
  std::optional<Joined> meet_again() {
    constexpr double kPieceSeconds = 0.5;
    const auto end = std::chrono::steady_clock::now() + to_milliseconds(join_.linger_s);
    while (std::chrono::steady_clock::now() < end && !signals_.has_come()) {
      try {
        return meet(kPieceSeconds);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kDeadlineExceeded) throw;
      }
    }
    std::fprintf(stderr, "ferry: rank %d leaves: nobody came\n", check_context().rank);
    return std::nullopt;
  }

  void work(Joined joined) {
    const std::vector<Term> terms = decode_report(joined.instructions, Rank{0}).terms;
    check_context().rank = joined.member.value;
    if (!holder_ || terms != terms_) {
      holder_.reset();
      holder_options_ = follow_instructions(options_, terms);
      holder_.emplace(holder_options_, place(joined.member));
      const std::string difference = check_instructions(terms, holder_->terms());
      if (!difference.empty()) std::fprintf(stderr, "ferry: warning: %s\n", one_line(difference).c_str());
      terms_ = terms;
    }
    std::fprintf(stderr, "ferry: rank %d has joined the coordinator at %s\n", joined.member.value, join_.address.c_str());
    StreamHub hub;
    const std::unique_ptr<Link> source = hub.adopt(std::move(joined.socket), Rank{0});
    holder_->begin_anew();
    ExpertServer server(*holder_, hub, *source,
                        {.rank = joined.member,
                         .peer_timeout = to_milliseconds(holder_options_.peer_timeout_s),
                         .clock_skew = options_.clock_skew,
                         .wants_to_leave = [this] { return signals_.has_come(); }});
    server.run();
  }

  static RankPlace place(Rank rank) {
    return {.rank = rank,
            .local_rank = 0,
            .cores = {.cores = available_cores(),
                      .is_coordinator = false,
                      .has_workers = true,
                      .ranks_on_cores = 2,  // others may be on this host: idle threads must not take their cores
                      .coordinator_on_cores = true}};
  }

  const EngineOptions options_;
  const JoinOptions join_;
  const std::string key_;
  const std::vector<std::byte> introduction_;
  LeaveSignals signals_;
  EngineOptions holder_options_;
  std::vector<Term> terms_;  // of the coordinator that the holder was made for
  std::optional<ExpertHolder> holder_;
};

}  // namespace

int run_joining_worker(const EngineOptions& options, const JoinOptions& join) { return JoiningWorker(options, join).run(); }

}  // namespace ferry
