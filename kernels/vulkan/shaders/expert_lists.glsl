// The lists of expert_rows by one workgroup. Behind expert_rows.glsl.

const uint kMaxPlaced = 512;

shared uint counts[kMaxListed];
shared uint first_rows[kMaxListed];
shared uint experts[kMaxPlaced];  // of the slots, where each has an invocation that places it

void clear_counts() {
  for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) counts[e] = 0;
  barrier();
}

// Within the workgroup: a wider scope would need a feature of the device.
void count_row(uint expert) { atomicAdd(counts[expert], 1, gl_ScopeWorkgroup, 0, gl_SemanticsRelaxed); }

// By the first subgroup, as many experts at once as it has invocations.
void find_first_rows() {
  barrier();
  if (gl_SubgroupID == 0) {
    uint before = 0;
    for (uint first = 0; first < p.num_experts; first += gl_SubgroupSize) {
      uint e = first + gl_SubgroupInvocationID, count = e < p.num_experts ? counts[e] : 0;
      uint begin = before + subgroupExclusiveAdd(count);
      if (e < p.num_experts) first_rows[e] = begin;
      before = subgroupMax(begin + count);
    }
  }
  barrier();
  for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) {
    I32(p.counts).v[e] = int(counts[e]);
    U32(p.row_totals).v[e] += counts[e];
  }
}

// Of up to kMaxPlaced slots: a row comes behind those of the expert's earlier slots.
void place_slots(uint num_slots) {
  uint slot = gl_LocalInvocationID.x;
  if (slot >= num_slots) return;
  uint expert = experts[slot], row = first_rows[expert];
  for (uint i = 0; i < slot; ++i) row += experts[i] == expert ? 1 : 0;
  place(slot, row, expert, first_rows[expert], counts[expert]);
}
