#include "profiler/export/ascend_profile.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>

#include "profiler/export/ascend_memory.h"
#include "profiler/export/ascend_rank.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxDevices = 31;  // a process id of the trace has 5 bits for the device, and 31 is the host

/// YYYYMMDDhhmmssmmm in UTC, as such folders are called.
std::string timestamp_of(int64_t epoch_ns) {
  const std::time_t seconds = epoch_ns / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[64];
  const std::size_t length = std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &utc);
  const std::string milliseconds = std::to_string(1000 + epoch_ns / 1'000'000 % 1000);
  return std::string(text, length) + milliseconds.substr(1);
}

/// Letters, digits, '.' and '-' stay: '_' separates the folder name's fields.
std::string plain_name(std::string text) {
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  }
  return text.empty() ? "host" : text;
}

void write_json(const std::filesystem::path& path, const ordered_json& content) {
  TextFile out(path);
  out << content.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
  out.close();
}

void make_folder(const std::filesystem::path& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure) throw Error(ErrorCode::kUnavailable, "'" + path.string() + "' cannot be made: " + failure.message());
}

/// Seconds since 1970, in ns, of the time 0 in the folder's files.
int64_t base_epoch_ns(const Capture& capture) { return capture.info.start_epoch_ns - kTraceStartNs; }

ordered_json make_profiler_info(const AscendRank& rank) {
  const CaptureInfo& info = rank.input.capture.info;
  const Timeline& timeline = rank.input.timeline;
  const char* const level = info.level == TraceLevel::kSteps ? "Level0" : "Level1";
  ordered_json common = {
      {"activities", {"ProfilerActivity.CPU", "ProfilerActivity.NPU"}},
      {"schedule", {{"wait", 0}, {"active", timeline.steps.size()}, {"warmup", 0}, {"repeat", 1}, {"skip_first", 0}}},
      {"record_shapes", true},
      {"profile_memory", true},
      {"with_stack", false},
      {"with_flops", true},
      {"with_modules", false}};
  ordered_json experimental = {{"_profiler_level", level},
                               {"_aic_metrics", "PipeUtilization"},
                               {"_l2_cache", false},
                               {"_data_simplification", true},
                               {"_export_type", {"text", "db"}}};
  return {{"config", {{"common_config", std::move(common)}, {"experimental_config", std::move(experimental)}}},
          {"start_info",
           {{"syscnt_enable", false},
            {"freq", 0},
            {"start_cnt", 0},
            {"start_monotonic", rank.capture.ticks.to_ns(rank.capture.begin)}}},
          {"end_info",
           {{"collectionTimeEnd", info.start_epoch_ns + timeline.end_ns},
            {"MonotonicTimeEnd", rank.capture.ticks.to_ns(rank.capture.end)}}},
          {"rank_id", rank.capture.rank}};
}

/// The parallel layout in the readers' terms. They know no expert-parallel workers without data parallelism and accept only
/// world = tensor x pipeline x data, so the ranks count as data parallel too.
ordered_json make_profiler_metadata(const AscendRank& rank) {
  const CaptureInfo& info = rank.input.capture.info;
  ordered_json ranks = ordered_json::array();
  for (const RankCapture& other : rank.input.capture.ranks) ranks.push_back(other.rank);
  const auto num_ranks = rank.input.capture.ranks.size();
  ordered_json groups;
  for (const bool is_dispatch : {true, false}) {
    const char* const name = collective_group(is_dispatch);
    groups[name] = {{"group_name", name}, {"global_ranks", ranks}};
  }
  groups["ep"] = {{"group_name", "exp"}, {"global_ranks", ranks}};  // by that name readers look for those who hold experts
  return {{"ENV_VARIABLES", ordered_json::object()},
          {"parallel_group_info", std::move(groups)},
          {"distributed_args",
           {{"tensor_model_parallel_size", 1},
            {"pipeline_model_parallel_size", 1},
            {"data_parallel_size", num_ranks},
            {"context_parallel_size", 1},
            {"expert_model_parallel_size", num_ranks},
            {"sequence_parallel", false},
            {"world_size", num_ranks}}},
          {"ferry",
           {{"version", info.version},
            {"command", info.command},
            {"transport", info.transport},
            {"model", info.model.name},
            {"host", rank.capture.host},
            {"process", rank.capture.pid},
            {"time_0_epoch_ns", base_epoch_ns(rank.input.capture)},
            {"clock_bound_ns", rank.capture.alignment.bound_ns}}}};
}

AscendMetadata as_database_metadata(const ordered_json& metadata) {
  AscendMetadata rows;
  for (const auto& [name, value] : metadata.items())
    rows.emplace_back(name, value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  return rows;
}

/// What a reader works out a chip's peak from: cores, each with so many operations a cycle, and their clock in MHz. Here the
/// clock is the one at which that comes to the measured peak. Nothing is written where no peak was measured.
void write_device_info(const AscendRank& rank, const std::filesystem::path& folder) {
  constexpr double kFlopPerCycle = 16 * 16 * 16 * 2;
  const double peak = rank.input.capture.info.flops_per_s;
  if (peak <= 0) return;
  const int32_t cores = std::max(rank.capture.num_threads, 1);
  const std::string number = std::to_string(rank.device);
  const std::filesystem::path device = folder / "PROF_000001" / ("device_" + number);
  make_folder(device);
  write_json(device / ("info.json." + number), {{"DeviceInfo",
                                                 {{{"id", rank.device},
                                                   {"ai_core_num", cores},
                                                   {"aic_frequency", std::to_string(peak / (cores * kFlopPerCycle * 1e6))}}}}});
}

template <class Write>
void write_text(const std::filesystem::path& path, Write&& write) {
  TextFile out(path);
  write(out);
  out.close();
}

void write_folder(const AscendRank& rank, const std::filesystem::path& folder) {
  const std::filesystem::path output = folder / "ASCEND_PROFILER_OUTPUT";
  make_folder(output);
  write_device_info(rank, folder);
  write_json(folder / ("profiler_info_" + std::to_string(rank.capture.rank) + ".json"), make_profiler_info(rank));
  const ordered_json metadata = make_profiler_metadata(rank);
  write_json(folder / "profiler_metadata.json", metadata);
  write_text(output / "trace_view.json", [&](TextFile& out) { write_trace_view(rank, out); });
  write_text(output / "step_trace_time.csv", [&](TextFile& out) { write_step_trace_time(rank, out); });
  write_text(output / "api_statistic.csv", [&](TextFile& out) { write_api_statistic(rank, out); });
  write_text(output / "communication.json", [&](TextFile& out) { write_communication(rank, out); });
  write_text(output / "communication_matrix.json", [&](TextFile& out) { write_communication_matrix(rank, out); });
  write_text(output / "kernel_details.csv", [&](TextFile& out) { write_kernel_details(rank, out); });
  write_text(output / "operator_details.csv", [&](TextFile& out) { write_operator_details(rank, out); });
  write_text(output / "op_statistic.csv", [&](TextFile& out) { write_op_statistic(rank, out); });
  const AscendMemory memory = find_memory(rank);
  write_text(output / "memory_record.csv", [&](TextFile& out) { write_memory_record(rank, memory, out); });
  write_text(output / "npu_module_mem.csv", [&](TextFile& out) { write_module_memory(rank, memory, out); });
  write_text(output / "operator_memory.csv", [&](TextFile& out) { write_operator_memory(rank, memory, out); });
  const std::string number = std::to_string(rank.capture.rank);
  write_profiler_database(rank, as_database_metadata(metadata), output / ("ascend_pytorch_profiler_" + number + ".db"));
  write_analysis_database(rank, output / "analysis.db");
}

}  // namespace

void write_ascend_profiles(const ReportInput& input, const std::filesystem::path& directory) {
  const TraceFacts facts(input);
  const Outline outline(input);
  const std::string timestamp = timestamp_of(input.capture.info.start_epoch_ns);
  std::map<std::string, int64_t> num_on_host;
  std::set<std::string> workers;
  for (const RankCapture& capture : input.capture.ranks) {
    const int64_t device = num_on_host[capture.host]++ % kMaxDevices;
    if (capture.threads.empty()) continue;  // lost before it could hand in what it recorded
    AscendRank rank{.input = input,
                    .facts = facts,
                    .outline = outline,
                    .capture = capture,
                    .device = device,
                    .collectives = find_collectives(input, capture.rank),
                    .lanes = {},
                    .work = {}};
    for (std::size_t l = 0; l < input.timeline.lanes.size(); ++l) {
      if (input.timeline.lanes[l].rank == capture.rank) rank.lanes.push_back(static_cast<int32_t>(l));
    }
    rank.work = find_work(input.timeline, rank.lanes);
    std::string worker = plain_name(capture.host) + "_" + std::to_string(capture.pid);
    if (!workers.insert(worker).second) worker += "-" + std::to_string(capture.rank);  // two ranks of one process
    write_folder(rank, directory / (worker + "_" + timestamp + "_ascend_pt"));
  }
}

}  // namespace ferry
