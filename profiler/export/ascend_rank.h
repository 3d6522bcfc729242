#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "profiler/export/ascend_calls.h"
#include "profiler/export/collectives.h"
#include "profiler/export/outline.h"
#include "profiler/export/text_file.h"
#include "profiler/export/trace_facts.h"
#include "profiler/report/timeline/report_input.h"

// One rank's `…_ascend_pt` folder while it is written. The mapping: a thread that computes is a stream of the device, and a
// GPU's lane is one; everything else that a thread does is the host's, messages are HCCL's, and the device is the process.

namespace ferry {

/// What all files of one rank's folder are made from.
struct AscendRank {
  const ReportInput& input;
  const TraceFacts& facts;
  const Outline& outline;
  const RankCapture& capture;
  int64_t device = 0;           // number of the rank among those of its host, modulo 31
  RankCollectives collectives;  // as this rank saw them
  std::vector<int32_t> lanes;   // its own, indices into Timeline::lanes
  AscendWork work;              // calls and kernels of these

  /// The number that ties a collective to its launch and its tasks, behind those of calls; `collective` is an index.
  int64_t connection(std::size_t collective) const { return static_cast<int64_t>(work.calls.size() + collective) + 1; }
};

/// What describes the run: names and values, which are JSON.
using AscendMetadata = std::vector<std::pair<std::string, std::string>>;

/// Whether the lane is a stream of the device, as far as it holds operators: a thread's, or a real device's.
inline bool is_stream(const Lane& lane) { return lane.kind == Lane::Kind::kThread || lane.kind == Lane::Kind::kDevice; }

/// The operator's type is its name up to the first '.'.
std::string operator_type(Zone zone);
/// The unit that would run it: "AI_CORE" for matrix products, "MIX_AIC" for what multiplies matrices and does more with the
/// result (products with SwiGLU, attention, the delta rule), "AI_VECTOR_CORE" for the rest.
const char* accelerator_core(Zone zone);

/// "hcom_alltoallv__dispatch_<layer>": the same on all ranks, once a step.
std::string collective_name(const Collective& collective);
/// The same for databases, where no two collectives of a rank have one name: "hcom_alltoallv__dispatch_<step>_<layer>".
std::string unique_collective_name(const Collective& collective);
/// The communicator that an exchange runs in: dispatch and combine overlap, so each has one.
const char* collective_group(bool is_dispatch);  // "ep_dispatch", "ep_combine"
/// What HCCL's files call that group: the decimal hash of its name.
std::string collective_group_hash(bool is_dispatch);

/// "HCCS" between ranks of one host, "RDMA" between hosts: the names by which the readers know fast and slow links.
const char* transport_type(const AscendRank& rank, int32_t peer);

/// A row of step_trace_time.csv: computing, communication not overlapped, overlapped, communication, free, stage, bubble,
/// communication not overlapped and exclude receive, preparing.
struct AscendStepTime {
  uint32_t step = 0;
  std::array<int64_t, 9> ns{};
};
std::vector<AscendStepTime> find_step_times(const AscendRank& rank);

/// Kinds of host-side work as api_statistic.csv and the CANN lanes name them: "Model", "Node", "Runtime".
const char* host_level(ZoneKind kind);

// The files.
void write_trace_view(const AscendRank& rank, TextFile& out);
void write_kernel_details(const AscendRank& rank, TextFile& out);
void write_operator_details(const AscendRank& rank, TextFile& out);
void write_op_statistic(const AscendRank& rank, TextFile& out);
void write_api_statistic(const AscendRank& rank, TextFile& out);
void write_step_trace_time(const AscendRank& rank, TextFile& out);
void write_communication(const AscendRank& rank, TextFile& out);
void write_communication_matrix(const AscendRank& rank, TextFile& out);
void write_profiler_database(const AscendRank& rank, const AscendMetadata& metadata, const std::filesystem::path& path);
void write_analysis_database(const AscendRank& rank, const std::filesystem::path& path);

}  // namespace ferry
