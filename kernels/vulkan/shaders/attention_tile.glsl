// The tile of query rows, of one kv head, that a workgroup of attention takes, and the splits of keys that it sums up for them.
// Who includes it says how many rows a tile has: kRows.

AttentionSequence sequence;
uint kv_head, group;
uint first_query, num_queries;  // query rows of the sequence
uint num_visible;               // keys that its last row sees
uint first_split, end_split;
bool is_whole;                  // whether these are all splits

uint last_position(uint query) { return sequence.num_past + min(first_query + query, first_query + num_queries - 1) / group; }

// Returns whether there is something to do.
bool find_tile() {
  uint task = workgroup_row() / p.num_kv_heads;
  kv_head = workgroup_row() - task * p.num_kv_heads;
  if (task >= p.num_tasks) return false;
  sequence = AttentionSequences(p.sequences).v[find_sequence(p.sequences, p.num_sequences, task, false)];
  task -= sequence.first_task;
  group = p.num_heads / p.num_kv_heads;
  uint splits = max(sequence.num_splits, 1);
  uint tile = task / splits;
  first_split = task - tile * splits;
  tile = (sequence.num_tokens * group - 1) / kRows - tile;  // the last sees the most keys and begins first
  first_query = tile * kRows;
  num_queries = min(kRows, sequence.num_tokens * group - first_query);
  num_visible = last_position(kRows - 1) + 1;
  uint all_splits = (num_visible + kSplitKeys - 1) / kSplitKeys;
  end_split = sequence.num_splits == 0 ? all_splits : first_split + 1;
  is_whole = sequence.num_splits < 2;
  return first_split < all_splits;
}
