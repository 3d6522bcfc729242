// The largest of columns, the lowest of equal ones, over a workgroup. The order in which columns meet does not matter.

#include "order_key.glsl"

const uint kNoColumn = 0xffffffffu;  // -1
const uint kLeastKey = 0x007fffffu;  // of minus infinity: only what is above may be chosen

struct Best {
  uint key;  // order_key() of the value
  uint id;
};

Best no_best() { return Best(kLeastKey, kNoColumn); }

// `key` of a column behind all that `best` has seen.
void take_next(inout Best best, uint key, uint id) {
  if (key > best.key) best = Best(key, id);
}

void take_any(inout Best best, Best other) {
  if (other.key > best.key || (other.key == best.key && other.id < best.id)) best = other;
}

Best subgroup_best(Best best) {
  uint key = subgroupMax(best.key);
  return Best(key, subgroupMin(best.key == key ? best.id : kNoColumn));
}

shared Best subgroup_bests[128];  // at most 512 invocations in subgroups of 4

// To every invocation. All invocations of the workgroup call it, once.
Best workgroup_best(Best best) {
  Best part = subgroup_best(best);
  if (subgroupElect()) subgroup_bests[gl_SubgroupID] = part;
  barrier();
  part = subgroup_bests[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) take_any(part, subgroup_bests[i]);
  return part;
}
