// How the logits of a token become its experts and their weights, as router_topk of ops.h says: by a subgroup, of which each
// invocation has every gl_SubgroupSize-th expert. Where tokens are few, kTeam subgroups share what has to be done for each
// expert alone, of which the first one chooses: that gives the same bits in a fraction of the instructions, which a device
// that runs many other kernels in between has to fetch as well. Behind a push block p with what RouterTopkPush has.
#extension GL_KHR_shader_subgroup_vote : require

#include "exponential.glsl"
#include "order_key.glsl"
#include "push_router.h"

layout(constant_id = 1) const uint kMaxExperts = 512;
layout(constant_id = 2) const uint kSubgroupSize = 32;
layout(constant_id = 3) const uint kTeam = 1;  // divides kLaneExperts and the workgroup's subgroups
const uint kLaneExperts = (kMaxExperts + kSubgroupSize - 1) / kSubgroupSize;
const uint kOwnExperts = kLaneExperts / kTeam;  // of the invocation, in the team
const uint kTeams = gl_WorkGroupSize.x / (kTeam * kSubgroupSize);
const uint kSharedExperts = kTeam > 1 ? kTeams * kMaxExperts : 1;

shared float team_values[kSharedExperts];
shared uint team_keys[kSharedExperts];
shared float team_largest[kTeam > 1 ? kTeams * kTeam : 1];

float minus_infinity() { return uintBitsToFloat(0xff800000u); }

// e^0 also where the largest is infinite.
float softmax_term(float x, float largest) { return x == largest ? 1.0 : accurate_exp(x - largest); }

const uint kNotChosen = 0xffffffffu;

// Of the invocation's experts, of which a team's come first.
float values[kLaneExperts];  // probabilities
uint keys[kLaneExperts];     // order_key() of the choice values, 0 for those that are chosen and for those that are not there
uint places[kLaneExperts];   // among those that are chosen

uint lane_expert(uint i) { return gl_SubgroupInvocationID + i * kSubgroupSize; }
uint own_expert(uint i) { return lane_expert(gl_SubgroupID % kTeam * kOwnExperts + i); }
uint team_place(uint expert) { return gl_SubgroupID / kTeam * kMaxExperts + expert; }

// Logits of which a NaN counts as -infinity. All are on their way before one is looked at: a load behind a branch would wait.
void load_logits(uint64_t logits) {
  for (uint i = 0; i < kOwnExperts; ++i) values[i] = load_t(logits, min(own_expert(i), p.num_experts - 1));
  for (uint i = 0; i < kOwnExperts; ++i) {
    if (own_expert(i) >= p.num_experts || is_nan(values[i])) values[i] = minus_infinity();
  }
}

// To all of the team.
float largest_of_team() {
  float largest = minus_infinity();
  for (uint i = 0; i < kOwnExperts; ++i) largest = max(largest, values[i]);
  largest = subgroupMax(largest);
  if (kTeam == 1) return largest;
  team_largest[gl_SubgroupID] = largest;
  barrier();
  uint first = gl_SubgroupID / kTeam * kTeam;
  for (uint i = 0; i < kTeam; ++i) largest = max(largest, team_largest[first + i]);
  return largest;
}

// Likewise. The sum of each invocation of one subgroup in ascending order, whoever has the values.
float total_of_team() {
  if (kTeam > 1) {
    for (uint i = 0; i < kOwnExperts; ++i) team_values[team_place(own_expert(i))] = values[i];
    barrier();
  }
  float total = 0.0;
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (lane_expert(i) < p.num_experts) total += kTeam > 1 ? team_values[team_place(lane_expert(i))] : values[i];
  }
  if (kTeam > 1) barrier();
  return subgroupAdd(total);
}

// Every subgroup of the team gets what all of them have found out.
void share_experts() {
  for (uint i = 0; i < kOwnExperts; ++i) {
    team_values[team_place(own_expert(i))] = values[i];
    team_keys[team_place(own_expert(i))] = keys[i];
  }
  barrier();
  for (uint i = 0; i < kLaneExperts; ++i) {
    values[i] = team_values[team_place(lane_expert(i))];
    keys[i] = team_keys[team_place(lane_expert(i))];
  }
  barrier();
}

// By all subgroups of the workgroup at once if there are teams.
void weigh_experts(uint64_t logits) {
  float total = 0.0;
  load_logits(logits);
  if (p.is_sigmoid == 0) {
    float largest = largest_of_team();
    for (uint i = 0; i < kOwnExperts; ++i) values[i] = softmax_term(values[i], largest);
    total = total_of_team();
  }
  for (uint i = 0; i < kOwnExperts; ++i) {
    uint e = own_expert(i);
    keys[i] = 0;
    if (e >= p.num_experts) continue;
    values[i] = p.is_sigmoid != 0 ? round_t(accurate_sigmoid(values[i])) : quotient(values[i], total);
    keys[i] = order_key(p.bias == 0 ? values[i] : values[i] + F32(p.bias).v[e]);
  }
  if (kTeam > 1) share_experts();
  for (uint i = 0; i < kLaneExperts; ++i) places[i] = kNotChosen;
}

// Takes the best expert that is left, the lower id of equal ones, as the one at `place`, and gives its probability to all
// invocations.
uint take_best(uint place, out float value) {
  uint best = kNotChosen, best_key = 0;
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (keys[i] <= best_key) continue;
    best = lane_expert(i);
    best_key = keys[i];
  }
  uint key = subgroupMax(best_key);
  uint winner = subgroupMin(best_key == key ? best : kNotChosen);
  float own = 0.0;
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (lane_expert(i) != winner) continue;
    own = values[i];
    keys[i] = 0;
    places[i] = place;
  }
  value = subgroupShuffle(own, winner % kSubgroupSize);
  return winner;
}

// Stores the weights of the invocation's experts that are chosen, of all of which the probabilities add up to `sum`: one of
// every invocation at a time, since most have one or none.
void store_weights(uint row, float sum) {
  while (true) {
    uint place = kNotChosen, expert = 0;
    float value = 0.0;
    for (uint i = 0; i < kLaneExperts; ++i) {
      if (places[i] == kNotChosen || place != kNotChosen) continue;
      place = places[i];
      expert = lane_expert(i);
      value = values[i];
      places[i] = kNotChosen;
    }
    if (!subgroupAny(place != kNotChosen)) return;
    if (place != kNotChosen) {
      uint64_t at = (uint64_t(row) * p.top_k + place) * 4;
      float weight = p.is_normalised != 0 ? quotient(value, sum) : value;
      I32(p.topk_idx + at).v[0] = int(expert);
      F32(p.topk_weights + at).v[0] = round_t(weight * p.scale);
    }
  }
}

// Of row `row`, whose experts are weighed: by one subgroup.
void choose_experts(uint row) {
  precise float sum = p.sum_eps;
  for (uint k = 0; k < p.top_k; ++k) {
    float value;
    uint winner = take_best(k, value);
    sum += value;
    if (gl_SubgroupInvocationID == 0) note_choice(row * p.top_k + k, winner);
  }
  store_weights(row, sum);
}

uint64_t logits_of(uint row) { return p.logits + uint64_t(row) * p.logits_stride * kBytesOfT; }
