// The lists of expert_rows by one workgroup. Behind expert_rows.glsl.

const uint kMaxPlaced = 512;

shared uint counts[kMaxListed];
shared uint first_rows[kMaxListed];
shared uint experts[kMaxPlaced];  // of the slots, where each has an invocation that places it

const uint kLaneTotals = (kMaxListed + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;

// The totals so far of the invocation's experts: asked for at the start, they are there at the end.
void load_totals(out uint totals[kLaneTotals]) {
  for (uint i = 0; i < kLaneTotals; ++i) {
    totals[i] = U32(p.row_totals).v[min(gl_LocalInvocationID.x + i * gl_WorkGroupSize.x, p.num_experts - 1)];
  }
}

void clear_counts() {
  for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) counts[e] = 0;
  barrier();
}

// Within the workgroup: a wider scope would need a feature of the device.
void count_row(uint expert) { atomicAdd(counts[expert], 1, gl_ScopeWorkgroup, 0, gl_SemanticsRelaxed); }

// By the first subgroup, of which each invocation has a run of experts.
void find_first_rows() {
  barrier();
  if (gl_SubgroupID == 0) {
    uint run = (p.num_experts + gl_SubgroupSize - 1) / gl_SubgroupSize;
    uint first = gl_SubgroupInvocationID * run, end = min(first + run, p.num_experts), count = 0;
    for (uint e = first; e < end; ++e) count += counts[e];
    uint row = subgroupExclusiveAdd(count);
    for (uint e = first; e < end; ++e) {
      first_rows[e] = row;
      row += counts[e];
    }
  }
  barrier();
}

// `totals`: of load_totals().
void store_counts(uint totals[kLaneTotals]) {
  for (uint i = 0; i < kLaneTotals; ++i) {
    uint e = gl_LocalInvocationID.x + i * gl_WorkGroupSize.x;
    if (e >= p.num_experts) continue;
    I32(p.counts).v[e] = int(counts[e]);
    U32(p.row_totals).v[e] = totals[i] + counts[e];
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
