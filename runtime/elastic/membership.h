#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moe/placement/load_windows.h"
#include "moe/placement/spread.h"
#include "moe/remote/relocation.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "profiler/zones.h"
#include "runtime/elastic/door.h"
#include "runtime/elastic/placement_order.h"
#include "runtime/watched_links.h"

namespace ferry {

/// Who works for a coordinator: it takes workers that come, lets go those that want to leave, and gives the experts of lost
/// ones to the others; and, if asked to, it moves experts to where they take less time. All of that beside the steps: the
/// placement changes between two of them, once every worker is ready (Relocation).
///
/// Used by the thread that steps. Over a group nobody comes or goes, and it does nothing.
class Membership {
 public:
  struct Options {
    Redundancy redundancy;                     // of the first placement
    std::function<ExpertLoads()> loads;        // what was asked of experts of late
    std::function<bool()> may_drop_links;      // whether nobody else uses links that have ended
    std::function<void()> on_placement;        // steps run by another one from now on
    CanaryWitness* witness = nullptr;          // of this rank, if it computes as CPUs do; outlives this
    std::chrono::milliseconds timeout{30000};  // for a worker that makes an assignment ready to give a sign of life
    int64_t rebalance_steps = 0;               // between two looks at the balance; 0: experts move only when workers come or go
  };
  /// `links` [the placement's workers], null where nobody is. `dispatcher` and `hub` outlive all use of this but its end.
  Membership(RemoteTokenDispatcher& dispatcher, WatchedLinks& hub, std::vector<std::unique_ptr<Link>> links, Options options,
             OnWorkerChange on_change);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// From now on workers come through `door`; their links are the hub's.
  void open(std::unique_ptr<Door> door) { door_ = std::move(door); }
  /// At the end: nobody comes any more, and those who get no rows yet are told to go.
  void close();
  /// Where they come; null: nowhere.
  const Door* door() const { return door_.get(); }

  /// Between steps, and again and again while none runs: does what there is to do without waiting. Cheap if that is nothing.
  void tend();
  /// The same, before a step.
  void begin_step();
  /// Whether it should be called again soon.
  bool is_busy() const { return relocation_ != nullptr || must_go_back_; }

  /// Between steps: begins to move experts to exactly `layers` (lay_out_given), and settles `order` when steps run by them or
  /// never will: {kFailedPrecondition} if a worker cannot hold them, {kAborted} if one is lost meanwhile, {kUnavailable} if
  /// this ends. Until a worker comes or goes they stay so. Throws Error{kInvalidArgument} for experts of whom gets no rows
  /// (require_seats), {kAborted} while experts move for workers that come or go or for another order, if the placement is not
  /// that of `epoch`, or if it is but a worker has left since (0: whatever it is), and {kFailedPrecondition} over a group.
  void set_placement(std::vector<LayerPlacement> layers, uint32_t epoch, std::shared_ptr<PlacementOrder> order);
  /// Between steps: `order` need not be settled any more. What is on its way for it goes back.
  void give_up(const PlacementOrder& order);
  /// Whether the placement that steps run by was set so.
  bool is_set_by_hand() const { return is_set_by_hand_; }

  /// Of those that get rows, by worker; null where nobody is.
  std::vector<Link*> links() const;

 private:
  /// What a change of placement is for.
  enum class Aim : uint8_t { kMembers, kBalance, kByHand, kGoBack };

  struct Member {
    Rank rank;
    std::unique_ptr<Link> adopted;  // what `link` watches, if it came through the door
    std::unique_ptr<Link> link;     // null: nobody
    std::vector<std::byte> bytes;   // of the next notice
    std::unique_ptr<PendingOp> notice;
    bool is_seated = false;  // it has what the dispatcher's placement says
    bool is_lost = false;    // it had, and others are to have it
    bool wants_to_leave = false;
    std::optional<int64_t> most_experts;  // of a layer, once it could not take more
    std::vector<std::byte> keep_alive;    // that it hears while it gets no rows
    std::unique_ptr<PendingOp> keep_alive_send;
    Deadline kept_alive{};
    Deadline last_sign{};   // of life, while it makes an assignment ready
    bool is_ready = false;  // it is
  };

  void take_newcomers();
  void post_notice(Member& member);
  void take_notices();
  void read_notice(int32_t worker, std::size_t num_bytes);
  void look_for_losses();
  void check_silence();
  void keep_newcomers_alive();
  void advance_relocation();
  void hear_witness();
  void refuse(Relocation::Refusal refusal);
  void change_placement();
  void say_goodbye(Member& member, const std::string& reason = "");
  void let_last_one_go();
  void vacate(int32_t worker, const std::string& reason);
  bool is_alive(const Member& member) const { return member.link && !member.link->failure(); }
  bool has_hands() const;
  bool wants_change() const;
  bool holds_experts(std::size_t worker) const;
  void plan(Aim aim);
  void begin(ExpertPlacement target, Aim aim);
  void drop_relocation(const Error& why);
  void go_back();
  const char* aim_name() const;
  PlacementEvent begin_event() const;
  void tell(const WorkerChange& change);

  RemoteTokenDispatcher& dispatcher_;
  WatchedLinks& hub_;
  const Options options_;
  const OnWorkerChange on_change_;
  std::unique_ptr<Door> door_;
  std::vector<Member> members_;   // by worker
  std::vector<bool> was_seated_;  // by worker, when steps began to run by the dispatcher's placement
  std::vector<Member> ended_;     // whose links somebody may still use
  std::unique_ptr<Relocation> relocation_;
  Aim aim_ = Aim::kMembers;                // its own
  std::shared_ptr<PlacementOrder> order_;  // its own, if it is by hand
  bool is_set_by_hand_ = false;            // what steps run by
  bool must_go_back_ = false;              // workers were told of what will not be
  bool is_stuck_ = false;                  // what is wanted cannot be: until somebody comes or goes
  int num_refusals_ = 0;                   // since then, or since the placement last changed
  uint32_t next_epoch_;
  Deadline relocation_begun_;
  std::optional<Deadline> witness_until_;  // once all workers have answered
  Deadline last_tended_{};
  int64_t num_steps_ = 0;  // since experts could last move for balance's sake
};

}  // namespace ferry
