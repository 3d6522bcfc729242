#include <string>

#include "profiler/export/ascend_rank.h"
#include "profiler/export/ascend_tensors.h"

namespace ferry {
namespace {

/// Readers take a tensor's shape a line, behind which comes ';'.
std::string shape_lines(const std::string& shapes) {
  std::string lines;
  for (const char c : shapes) {
    if (c == '"') continue;
    lines += c;
    if (c == ';') lines += '\n';
  }
  return lines;
}

void write_host_times(const AscendCall& call, const Slice& slice, TextFile& out) {
  out.scaled(call.is_seen ? slice.self_ns : 0, 3) << ",";
  out.scaled(call.is_seen ? slice.duration_ns() : 0, 3) << ",";
}

}  // namespace

/// A row for each call. Readers take the columns by their places; what is behind them is ours.
void write_operator_details(const AscendRank& rank, TextFile& out) {
  const AscendOperands operands(rank);
  out << "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),"
         "Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us),FLOPs\n";
  for (const AscendCall& call : rank.work.calls) {
    const Slice& slice = rank.input.timeline.slices[static_cast<std::size_t>(call.slice)];
    out << zone_info(slice.zone).name << ",\"" << shape_lines(operands.inputs(slice).shapes) << "\",,";
    write_host_times(call, slice, out);
    for (const int64_t ns : {call.self_ns, call.total_ns, call.core_self_ns, call.core_total_ns}) out.scaled(ns, 3) << ",";
    out << operands.flop_text(slice) << "\n";
  }
}

}  // namespace ferry
