// Finding the sequence that a workgroup works for.

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer AttentionSequences { AttentionSequence v[]; };

shared uint found_sequence;

// The last of the sequences whose `first_task`, or first reduced row, is not above `wanted`. All invocations call it.
uint find_sequence(uint64_t sequences, uint count, uint wanted, bool among_reduced) {
  if (count == 1) return 0;
  AttentionSequences table = AttentionSequences(sequences);
  for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
    uint first = among_reduced ? table.v[i].first_reduced : table.v[i].first_task;
    bool is_before_next = true;
    if (i + 1 < count) is_before_next = wanted < (among_reduced ? table.v[i + 1].first_reduced : table.v[i + 1].first_task);
    if (first <= wanted && is_before_next) found_sequence = i;
  }
  barrier();
  return found_sequence;
}
