// Sums and maxima over a workgroup, in an order that only its size and the subgroup's decide.

shared float reduce_parts[128];  // [subgroups], at most 1024 / 8

// To every invocation. All invocations of the workgroup call it.
float workgroup_sum(float x) {
  float part = subgroupAdd(x);
  barrier();  // who reads the last call's parts has done so
  if (subgroupElect()) reduce_parts[gl_SubgroupID] = part;
  barrier();
  float sum = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) sum += reduce_parts[i];
  return sum;
}

float workgroup_max(float x) {
  float part = subgroupMax(x);
  barrier();
  if (subgroupElect()) reduce_parts[gl_SubgroupID] = part;
  barrier();
  float largest = reduce_parts[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) largest = max(largest, reduce_parts[i]);
  return largest;
}
