#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "profiler/export/ascend_rank.h"
#include "profiler/export/ascend_tensors.h"
#include "runtime/base/csv_field.h"

namespace ferry {
namespace {

/// A kernel or a collective: kernel_details.csv lists both, by begin.
struct Row {
  int64_t begin_ns = 0;
  const AscendKernel* kernel = nullptr;
  const Collective* collective = nullptr;
};

std::vector<Row> sort_rows(const AscendRank& rank) {
  std::vector<Row> rows;
  rows.reserve(rank.work.kernels.size() + rank.collectives.collectives.size());
  for (const AscendKernel& kernel : rank.work.kernels)
    rows.push_back({rank.input.timeline.slices[static_cast<std::size_t>(kernel.slice)].begin_ns, &kernel, nullptr});
  for (const Collective& collective : rank.collectives.collectives) rows.push_back({collective.begin_ns, nullptr, &collective});
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) { return x.begin_ns < y.begin_ns; });
  return rows;
}

std::string step_text(uint32_t step) { return step == kNoStep ? "" : std::to_string(step); }

class KernelDetails {
 public:
  KernelDetails(const AscendRank& rank, TextFile& out) : rank_(rank), out_(out), operands_(rank) {}

  void write() {
    // The columns from aicore_time(us) on are free: readers list them as they are called here.
    out_ << "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
            "Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
            "Output Data Types,Output Formats,Context ID,aicore_time(us),aiv_vec_time(us),Layer,Layer Type,Phase,Part,FLOPs\n";
    for (const Row& row : sort_rows(rank_)) {
      if (row.kernel != nullptr) {
        write_kernel(*row.kernel);
      } else {
        write_collective(*row.collective);
      }
      ++task_;
    }
  }

 private:
  void start_row(uint32_t step, const std::string& stream) {
    out_ << step_text(step) << "," << rank_.device << ",0," << task_ << "," << stream << ",";
  }

  void write_times(int64_t begin_ns, int64_t duration_ns, int64_t gap_ns) {
    out_.scaled(begin_ns + kTraceStartNs, 3) << "\t,";
    out_.scaled(duration_ns, 3) << ",";
    out_.scaled(gap_ns, 3) << ",";
  }

  void write_kernel(const AscendKernel& kernel) {
    const Slice& slice = rank_.input.timeline.slices[static_cast<std::size_t>(kernel.slice)];
    const std::string_view core = accelerator_core(slice.zone);
    start_row(slice.step, std::to_string(kernel.stream));
    out_ << zone_info(slice.zone).name << "," << operator_type(slice.zone) << ",static," << core << ",";
    write_times(slice.begin_ns, kernel.work_ns, kernel.gap_ns);
    out_ << int64_t{std::max(rank_.capture.num_threads, 1)} << ",0,NO,";
    write_tensors(operands_.inputs(slice));
    write_tensors(operands_.outputs(slice));
    out_ << "N/A,";
    const bool is_vector = core == "AI_VECTOR_CORE";
    out_.scaled(is_vector ? 0 : kernel.work_ns, 3) << ",";
    out_.scaled(is_vector ? kernel.work_ns : 0, 3) << ",";
    write_place(slice);
    out_ << "," << (slice.is_continued ? "0" : operands_.flop_text(slice)) << "\n";  // all with the first piece
  }

  /// Shapes, whose quotes are part of the text, data types and formats.
  void write_tensors(const AscendTensors& tensors) {
    const char* const quotes = tensors.shapes.empty() ? "" : "\"\"";
    out_ << quotes << tensors.shapes << quotes << "," << csv_field(tensors.types) << "," << tensors.formats << ",";
  }

  /// Layer, layer type, phase and part, as the trace says them.
  void write_place(const Slice& slice) {
    rank_.facts.fill_args(slice, args_);
    const auto text_of = [&](std::string_view name) -> std::string {
      for (const TraceArg& arg : args_) {
        if (arg.name == name) return arg.text != nullptr ? arg.text : std::to_string(arg.value);
      }
      return "N/A";
    };
    out_ << text_of("layer") << "," << csv_field(text_of("layer_type")) << "," << text_of("phase") << "," << text_of("part");
  }

  void write_collective(const Collective& collective) {
    start_row(collective.step, "N/A");
    out_ << collective_name(collective) << ",hcom_alltoallv_,static,COMMUNICATION,";
    write_times(collective.begin_ns, collective.elapse_ns(), collective.wait_ns);
    out_ << "0,0,NO,,,,,,,N/A,N/A,N/A,";
    write_place(
        rank_.input.timeline
            .slices[static_cast<std::size_t>(rank_.collectives.links[static_cast<std::size_t>(collective.first_link)].slice)]);
    out_ << ",N/A\n";
  }

  const AscendRank& rank_;
  TextFile& out_;
  const AscendOperands operands_;
  int64_t task_ = 0;
  std::vector<TraceArg> args_;
};

struct OperatorTotal {
  int64_t count = 0, total_ns = 0, min_ns = 0, max_ns = 0;

  void add(int64_t ns) {
    min_ns = count == 0 ? ns : std::min(min_ns, ns);
    max_ns = std::max(max_ns, ns);
    total_ns += ns;
    ++count;
  }
};

}  // namespace

void write_kernel_details(const AscendRank& rank, TextFile& out) { KernelDetails(rank, out).write(); }

void write_op_statistic(const AscendRank& rank, TextFile& out) {
  std::map<std::pair<std::string, std::string>, OperatorTotal> totals;  // by type and core
  std::vector<OperatorTotal*> total_of(kNumZones, nullptr);
  int64_t all_ns = 0;
  for (const AscendKernel& kernel : rank.work.kernels) {
    const Zone zone = rank.input.timeline.slices[static_cast<std::size_t>(kernel.slice)].zone;
    OperatorTotal*& total = total_of[static_cast<std::size_t>(zone)];
    if (total == nullptr) total = &totals[{operator_type(zone), accelerator_core(zone)}];
    total->add(kernel.work_ns);
    all_ns += kernel.work_ns;
  }
  std::vector<decltype(totals)::const_iterator> rows;
  for (auto it = totals.cbegin(); it != totals.cend(); ++it) rows.push_back(it);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& x, const auto& y) { return x->second.total_ns > y->second.total_ns; });
  out << "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n";
  for (const auto& row : rows) {
    const auto& [key, total] = *row;
    out << rank.device << "," << key.first << "," << key.second << "," << total.count << ",";
    out.scaled(total.total_ns, 3) << ",";
    out.scaled(total.min_ns, 3) << ",";
    out.rounded(static_cast<double>(total.total_ns) / 1e3 / static_cast<double>(total.count), 3) << ",";
    out.scaled(total.max_ns, 3) << ",";
    out.rounded(all_ns > 0 ? 100.0 * static_cast<double>(total.total_ns) / static_cast<double>(all_ns) : 0, 3) << "\n";
  }
}

}  // namespace ferry
