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
#include "moe/remote/canary_witness.h"

namespace ferry {

/// A change of placement while steps run: every worker that is to be there was told what it will hold, and says when that is
/// ready. Then the placement can change between two steps.
///
/// An expert that is read anew is believed when it sings what a rank sings that has it already. Where none is left, this rank
/// may be the witness, if it can be one. Only songs of one voice are compared, which is that of the kernels that a rank
/// computes with: a worker on a device may compute other bits than one on a CPU, and mostly computes the same.
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

  /// Tells the members, [target's workers]. `own_voice`: of this rank, if it sings, too. Throws nothing: a link that fails is
  /// its member's loss.
  Relocation(const ExpertPlacement& current, ExpertPlacement target, std::vector<Member> members,
             std::optional<uint64_t> own_voice = {});

  const ExpertPlacement& target() const { return target_; }
  const std::vector<Member>& members() const { return members_; }
  /// Experts that members were asked to read, of all layers together.
  int64_t num_loads() const { return num_loads_; }

  /// What a member says has become of it; nothing if it speaks of another epoch. Throws Error{kInternal} for an answer to
  /// something else.
  void take(int32_t worker, const Preparation& preparation);
  /// What this rank is to sing; none if it is no witness, or not needed as one.
  const std::vector<ExpertKey>& to_sing() const { return unwitnessed_; }
  /// What it sings.
  void hear(const ExpertKey& key, uint64_t canary) { heard_[key] = canary; }
  /// Once all members have answered and this rank has sung, or is not waited for any longer: compares the songs.
  void judge();
  /// Of experts that were read, those for which nobody's word stands, once they are judged: who has had them sings in another
  /// voice, or nobody has had them and this rank does, or has not sung.
  int64_t num_unwitnessed() const;

  /// Whether all members have answered that they are ready.
  bool is_answered() const { return num_open_ == 0 && !refusal_; }
  /// Whether all are ready, and their songs are judged.
  bool is_ready() const { return is_answered() && (unwitnessed_.empty() || is_judged_); }
  /// Why it will never be.
  const std::optional<Refusal>& refusal() const { return refusal_; }

 private:
  struct Song {
    int32_t worker;
    uint64_t voice;
    uint64_t canary;
  };
  struct Part {
    RankExperts canaries;
    std::vector<std::byte> message;
    std::unique_ptr<PendingOp> send;
    bool is_ready = false;
  };

  void plan_canaries(const ExpertPlacement& current);
  void compare(const ExpertKey& key, const Song& song);
  void agree(const ExpertKey& key, std::optional<int32_t> witness);
  void blame(const ExpertKey& key, int32_t worker, const std::string& other);

  const ExpertPlacement target_;
  const std::vector<Member> members_;
  const std::optional<uint64_t> own_voice_;
  std::vector<Part> parts_;                 // by worker
  std::map<ExpertKey, int32_t> witnesses_;  // who has had all the time what others read
  std::map<ExpertKey, std::vector<Song>> songs_;
  std::vector<ExpertKey> unwitnessed_;  // what is read and nobody has had, if this rank is a witness
  std::map<ExpertKey, uint64_t> heard_;
  bool is_judged_ = false;
  int64_t num_loads_ = 0;
  int64_t num_open_ = 0;
  std::optional<Refusal> refusal_;
};

}  // namespace ferry
