#include "runtime/elastic/joining_worker.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/stream/stream_hub.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/fingerprint.h"
#include "runtime/cluster/exit_guard.h"
#include "runtime/elastic/door.h"
#include "runtime/elastic/instructions.h"
#include "runtime/elastic/join_key.h"
#include "runtime/elastic/join_wait.h"
#include "runtime/elastic/joiner.h"
#include "runtime/expert_server.h"
#include "runtime/net/peer_address.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kLookPeriod{50};  // for those who were met meanwhile, and for signals

/// Termination signals, which are blocked: whether one has come.
class LeaveSignals {
 public:
  LeaveSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
  }
  /// Every further one ends the process at once. `has_experts`: a coordinator uses this worker, so others must take over first.
  bool has_come(bool has_experts) {
    const timespec now{};
    while (sigtimedwait(&set_, nullptr, &now) > 0) {
      if (has_come_) exit_now(EXIT_FAILURE, "ferry: asked to leave a second time: leaves at once");
      has_come_ = true;
      if (has_experts) std::fprintf(stderr, "ferry: leaves when others have its experts\n");
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
      : options_(options), linger_(to_milliseconds(join.linger_s)) {
    const JoinKeySource keys{.key_file = join.key_file, .own_folder = join.own_key_folder};
    const std::vector<std::byte> introduction =
        encode_report({.complaint = {},
                       .terms = introduction_terms(checkpoint_fingerprint(Checkpoint::open(options.model))),
                       .place = host_name()});
    for (const std::string& address : join.addresses) {
      if (std::ranges::count(join.addresses, address) > 1) throw_invalid("--join " + address + ": twice; allowed: once");
      Post& post = *posts_.emplace_back(std::make_unique<Post>());
      post.joiner.emplace(address, join_key_for(address, keys), introduction);
      post.wait.emplace(address);
      post.call(to_milliseconds(join.join_timeout_s));
    }
  }

  int run() {
    while (true) {
      is_leaving();
      for (const auto& post : posts_) {
        meet(*post);
        if (const std::optional<std::string> line = post->wait->take_line()) std::fprintf(stderr, "ferry: %s\n", line->c_str());
      }
      if (server_ && server_->has_conversations()) {
        if (std::optional<ExpertServer::Ended> ended = server_->serve(std::chrono::steady_clock::now() + kLookPeriod))
          part(*ended);
        continue;
      }
      if (is_leaving() || std::ranges::none_of(posts_, [](const auto& post) { return post->joiner->is_calling(); })) break;
      posts_.front()->joiner->wait(kLookPeriod);
    }
    if (failure_) throw Error(*failure_);
    return EXIT_SUCCESS;
  }

 private:
  /// One coordinator, and what this rank holds for it, also while it is away.
  struct Post {
    void call(std::chrono::milliseconds time) {
      joiner->call(time);
      wait->begin(time);
    }

    std::optional<Joiner> joiner;
    std::optional<JoinWait> wait;
    std::unique_ptr<Link> link;
    std::optional<ExpertHolder> holder;
  };

  bool is_leaving() { return signals_.has_come(server_ && server_->has_conversations()); }

  /// Begins to work for one who has answered.
  void meet(Post& post) {
    std::optional<Joined> joined;
    try {
      joined = post.joiner->take();
    } catch (const Error& error) {  // it never will
      post.wait->end();
      return give_up(error);
    }
    if (!joined) return;
    post.wait->end();
    const Rank rank = joined->member;
    check_context().rank = rank.value;
    const std::vector<Term> terms = decode_report(joined->instructions, Rank{0}).terms;
    if (shelf_ && terms != terms_) {
      if (server_->has_conversations())
        return give_up(Error(ErrorCode::kInvalidArgument, "the coordinator at " + post.joiner->address() +
                                                              " works by other options than the others; allowed: the same"));
      for (const auto& other : posts_) other->holder.reset();
      server_.reset();
      shelf_.reset();
    }
    if (!shelf_) open(rank, terms);
    if (!post.holder) post.holder.emplace(*shelf_);
    post.holder->begin_anew();
    post.link = hub_.adopt(std::move(joined->socket), Rank{0});
    server_->begin(rank, *post.link, *post.holder);
    std::fprintf(stderr, "ferry: rank %d has joined the coordinator at %s\n", rank.value, post.joiner->address().c_str());
  }

  /// One coordinator less; the others are served on.
  void give_up(const Error& error) {
    if (!failure_) failure_ = error;
    if (posts_.size() > 1) std::fprintf(stderr, "ferry: %s\n", one_line(error.what()).c_str());
  }

  void open(Rank rank, const std::vector<Term>& terms) {
    const EngineOptions options = follow_instructions(options_, terms);
    shelf_.emplace(options, place(rank));
    terms_ = terms;
    const std::string difference = check_instructions(terms, shelf_->terms(), rank);
    if (!difference.empty())
      std::fprintf(stderr, "ferry: warning: %s: results depend in their last bits on which rank holds an expert\n",
                   one_line(difference).c_str());
    server_.emplace(*shelf_, hub_,
                    ExpertServer::Options{.peer_timeout = to_milliseconds(options.peer_timeout_s),
                                          .clock_skew = options.clock_skew,
                                          .wants_to_leave = [this] { return is_leaving(); },
                                          .faults = options_.faults,
                                          .wait_to_merge = options_.sharing.wait_to_merge});
  }

  /// Others may be on this host: idle threads must not take their cores.
  static RankPlace place(Rank rank) {
    return {.rank = rank,
            .local_rank = 0,
            .cores = {.cores = available_cores(),
                      .is_coordinator = false,
                      .has_workers = true,
                      .ranks_on_cores = 2,
                      .coordinators_on_cores = 1}};
  }

  /// One has gone: another one is waited for at its place, or none.
  void part(const ExpertServer::Ended& ended) {
    const auto found = std::ranges::find_if(posts_, [&](const auto& post) { return post->link.get() == ended.source; });
    Post& post = **found;
    post.link.reset();
    const bool is_lost =
        ended.error && (ended.error->code() == ErrorCode::kUnavailable || ended.error->code() == ErrorCode::kDeadlineExceeded);
    if (linger_.count() > 0 && (is_lost || !ended.error) && !is_leaving()) {
      std::fprintf(stderr, "ferry: %s; waits for a coordinator at %s\n",
                   ended.error ? one_line(ended.error->what()).c_str() : "was sent home", post.joiner->address().c_str());
      post.call(linger_);
      return;
    }
    if (ended.error && posts_.size() > 1) {
      give_up(Error(ended.error->code(), "the coordinator at " + post.joiner->address() + ": " + ended.error->what()));
    } else if (ended.error) {
      give_up(*ended.error);
    }
    post.holder.reset();
  }

  const EngineOptions options_;
  const std::chrono::milliseconds linger_;
  LeaveSignals signals_;
  StreamHub hub_;
  std::vector<Term> terms_;  // that all coordinators have
  std::optional<ExpertShelf> shelf_;
  std::vector<std::unique_ptr<Post>> posts_;
  std::optional<ExpertServer> server_;
  std::optional<Error> failure_;  // the first
};

}  // namespace

int run_joining_worker(const EngineOptions& options, const JoinOptions& join) { return JoiningWorker(options, join).run(); }

}  // namespace ferry
