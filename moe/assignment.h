#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "moe/expert_placement.h"
#include "moe/wire.h"

// How a worker comes to hold other experts:
//
//   assignment   coordinator -> worker   WireHeader | number of layers i32 | two lists of experts
//   preparation  worker -> coordinator   WireHeader | voice u64 | canaries u64 [number of those asked for],
//                                        or why it cannot, as text
//   leave        worker -> coordinator   WireHeader: it wants to go once others hold what it holds
//
//   a list: of each layer its number of experts i32 | of each layer their ids i32 [number]
//
// The first list is what the worker is to hold, the second of which experts it is to tell the canary: a number made of what the
// expert computes from one fixed row, the same on every rank that holds the same weights and has the same voice, a number for
// the kernels that a rank computes with. Of two voices canaries may differ or not, which says nothing of the weights.
// The header's epoch is that of the placement to come. The worker makes it ready beside its work, says so, and goes over to it
// with the first rows that have that epoch; another assignment takes the place of one that it has not gone over to.

namespace ferry {

constexpr int kAssignmentTag = 4;  // of the first one; later ones are requests (kRequestTag)

struct Assignment {
  uint32_t epoch = 0;
  RankExperts experts;   // none: there is nothing to do
  RankExperts canaries;  // of experts that it holds now or then; none: of none
};

std::vector<std::byte> encode_assignment(const Assignment& assignment);
/// Of a model with so many layers with experts and so many experts.
int64_t max_assignment_bytes(int64_t num_layers, int64_t num_experts);
/// Throws Error{kInternal} for anything but an assignment of such a model, or of no layers. Ids of a layer are all different.
Assignment decode_assignment(std::span<const std::byte> message, int64_t num_layers, int64_t num_experts);

/// What became of an assignment.
struct Preparation {
  uint32_t epoch = 0;
  std::vector<uint64_t> canaries;  // layer by layer, in the order of the assignment's
  std::string complaint;           // why it cannot be done, of which kMaxReasonBytes are sent; empty: it is
  uint64_t voice = 0;              // of the worker, if it is done
};

std::vector<std::byte> encode_preparation(const Preparation& preparation);
int64_t max_preparation_bytes(int64_t num_layers, int64_t num_experts);
/// Throws Error{kInternal} for anything else.
Preparation decode_preparation(std::span<const std::byte> message);

}  // namespace ferry
