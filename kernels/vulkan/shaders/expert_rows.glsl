// What the shaders of expert_rows share, behind a push block p with what ExpertRowsPush has.

const uint kMaxListed = 1024;  // experts

// As of ops.h.
struct RowRun {
  int group, first_row, num_rows;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer RowRuns { RowRun v[]; };

// `row` of the rows is that of `slot`, among the `count` rows of `expert` from `first_row` on.
void place(uint slot, uint row, uint expert, uint first_row, uint count) {
  I32(p.row_token).v[row] = int(slot / p.top_k);
  I32(p.slot_row).v[slot] = int(row);
  RowRuns(p.row_runs).v[row] = RowRun(int(expert), int(first_row), int(count));
}
