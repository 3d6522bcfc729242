#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/link.h"
#include "moe/assignment.h"
#include "moe/expert_placement.h"

namespace ferry {

/// A change of placement while steps run: every worker that is to be there was told what it will hold, and says when that is
/// ready. Then the placement can change between two steps.
///
/// An expert that is read anew is believed when it sings what a rank sings that has it already, where one is left.
class Relocation {
 public:
  /// Whose word it is that a worker cannot, or that what it reads is not what another one has.
  struct Refusal {
    int32_t worker;
    std::string reason;
  };
  /// Who takes part, by index in the target.
  struct Member {
    Link* link = nullptr;        // null: nobody
    bool holds_current = false;  // what the current placement gives this worker
  };

  /// Tells the members, [target's workers]. Throws nothing: a link that fails is its member's loss.
  Relocation(const ExpertPlacement& current, ExpertPlacement target, std::vector<Member> members);

  const ExpertPlacement& target() const { return target_; }
  const std::vector<Member>& members() const { return members_; }
  /// Experts that members were asked to read, of all layers together.
  int64_t num_loads() const { return num_loads_; }

  /// What a member says has become of it; nothing if it speaks of another epoch. Throws Error{kInternal} for an answer to
  /// something else.
  void take(int32_t worker, const Preparation& preparation);
  /// Whether all are ready.
  bool is_ready() const { return num_open_ == 0 && !refusal_; }
  /// Why it will never be.
  const std::optional<Refusal>& refusal() const { return refusal_; }

 private:
  using Key = std::pair<int64_t, int32_t>;  // layer and expert
  struct Song {
    int32_t worker;
    uint64_t canary;
  };
  struct Part {
    RankExperts canaries;
    std::vector<std::byte> message;
    std::unique_ptr<PendingOp> send;
    bool is_ready = false;
  };

  void plan_canaries(const ExpertPlacement& current);
  void compare(const Key& key, const Song& song);

  const ExpertPlacement target_;
  const std::vector<Member> members_;
  std::vector<Part> parts_;           // by worker
  std::map<Key, int32_t> witnesses_;  // who has had all the time what others read
  std::map<Key, std::vector<Song>> songs_;
  int64_t num_loads_ = 0;
  int64_t num_open_ = 0;
  std::optional<Refusal> refusal_;
};

}  // namespace ferry
