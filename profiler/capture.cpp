#include "profiler/capture.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "profiler/capture_check.h"
#include "profiler/capture_sections.h"
#include "profiler/operator_json.h"
#include "profiler/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TickLine, base_ticks, base_ns, ns_per_tick)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockAlignment, reference_ns, offset_ns, drift, bound_ns, num_samples)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceFacts, name, driver, clock, clock_bound_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ModelFacts, name, dtype, layer_types, top_k, operators)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CaptureInfo, version, command, transport, level, world_size, start_epoch_ns, model,
                                   read_bytes_per_s, flops_per_s, max_running_requests, num_kv_blocks, expert_rank,
                                   expert_tokens)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HolderFacts, epoch, ranks, holders)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerChangeFacts, ticks, rank, from, to, reason)

namespace {

// A rank's file: magic, format, bytes of the JSON header, the header, the threads' records one after another, and the sections
// that the header lists, as they follow each other. One without sections is of the format that all versions read.
constexpr char kCaptureMagic[8] = {'F', 'E', 'R', 'R', 'Y', 'S', 'P', 'N'};
constexpr uint32_t kFormat = 1;
constexpr uint32_t kFormatWithSections = 2;

// Token counts by layer and expert are the most that stands in either: some ten thousand numbers.
constexpr JsonLimits kCaptureJson{.depth = 10, .bytes = int64_t{64} << 20, .values = int64_t{1} << 23};
constexpr int64_t kRankFileBytesMax = int64_t{16} << 30;

struct Preamble {
  char magic[8];
  uint32_t format;
  uint32_t num_zones;  // of the writer: later versions may know more
  uint64_t header_bytes;
};
static_assert(sizeof(Preamble) == 24);

Error damaged(const std::string& source, const std::string& what) {
  return {ErrorCode::kInvalidArgument, source + ": " + what + "; allowed: a capture file that Ferry wrote"};
}

json header_of(const RankCapture& c) {
  json threads = json::array();
  for (const ThreadCapture& thread : c.threads) {
    threads.push_back(
        {{"name", thread.name}, {"tid", thread.tid}, {"num_lost", thread.num_lost}, {"num_records", thread.records.size()}});
    if (thread.is_device) threads.back()["is_device"] = true;
  }
  json header = {{"rank", c.rank},
                 {"host", c.host},
                 {"boot_id", c.boot_id},
                 {"pid", c.pid},
                 {"num_threads", c.num_threads},
                 {"ticks", c.ticks},
                 {"alignment", c.alignment},
                 {"begin", c.begin},
                 {"end", c.end},
                 {"span_cost_ns", c.span_cost_ns},
                 {"chained_span_cost_ns", c.chained_span_cost_ns},
                 {"peak_rss_bytes", c.peak_rss_bytes},
                 {"num_preemptions", c.num_preemptions},
                 {"threads", std::move(threads)}};
  if (!c.device.name.empty()) header["device"] = c.device;
  if (!c.cores.empty()) header["cores"] = c.cores;
  return header;
}

RankCapture from_header(const json& header) {
  RankCapture c;
  header.at("rank").get_to(c.rank);
  header.at("host").get_to(c.host);
  header.at("boot_id").get_to(c.boot_id);
  header.at("pid").get_to(c.pid);
  header.at("num_threads").get_to(c.num_threads);
  header.at("ticks").get_to(c.ticks);
  header.at("alignment").get_to(c.alignment);
  header.at("begin").get_to(c.begin);
  header.at("end").get_to(c.end);
  header.at("span_cost_ns").get_to(c.span_cost_ns);
  c.chained_span_cost_ns = header.value("chained_span_cost_ns", 0.0);
  header.at("peak_rss_bytes").get_to(c.peak_rss_bytes);
  header.at("num_preemptions").get_to(c.num_preemptions);
  if (header.contains("device")) header.at("device").get_to(c.device);
  if (header.contains("cores")) header.at("cores").get_to(c.cores);
  return c;
}

/// At every moment at which a span of a device begins or ends, few others may run on: who divides the time between them takes
/// as many steps.
void check_overlap(std::span<const SpanRecord> records, const std::string& source) {
  std::vector<uint64_t> moments, begins, ends;  // the latter of spans that take time
  for (const SpanRecord& record : records) {
    moments.insert(moments.end(), {record.begin, record.end});
    if (record.begin == record.end) continue;
    begins.push_back(record.begin);
    ends.push_back(record.end);
  }
  for (std::vector<uint64_t>* times : {&moments, &begins, &ends}) std::ranges::sort(*times);
  auto next_begin = begins.begin(), next_end = ends.begin();
  for (const uint64_t moment : moments) {
    while (next_begin != begins.end() && *next_begin < moment) ++next_begin;
    while (next_end != ends.end() && *next_end <= moment) ++next_end;
    const std::ptrdiff_t num_running_on = (next_begin - begins.begin()) - (next_end - ends.begin());
    if (num_running_on > kMaxRunningOn)
      throw damaged(source, std::to_string(num_running_on) + " spans of a device that run on while others begin or end; " +
                                std::to_string(kMaxRunningOn) + " do at most");
  }
}

/// Takes the records of a thread or a device from the front of `rest`.
std::vector<SpanRecord> take_records(std::span<const std::byte>& rest, uint64_t num_records, bool is_device,
                                     const std::string& source) {
  if (num_records > rest.size() / sizeof(SpanRecord)) throw damaged(source, "fewer records than its header counts");
  std::vector<SpanRecord> records(num_records);
  if (num_records > 0) std::memcpy(records.data(), rest.data(), num_records * sizeof(SpanRecord));
  rest = rest.subspan(num_records * sizeof(SpanRecord));
  for (const SpanRecord& record : records) {
    if (static_cast<int>(record.zone) >= kNumZones || record.end < record.begin)
      throw damaged(source, "a record of zone " + std::to_string(static_cast<int>(record.zone)) +
                                " that ends before it begins or is unknown");
    if (!is_device && record.micro_batch >= kMaxRecordedMicroBatches)
      throw damaged(source, "a record of micro-batch " + std::to_string(record.micro_batch) + "; a layer has " +
                                std::to_string(kMaxRecordedMicroBatches) + " in a step at most");
  }
  if (is_device) check_overlap(records, source);
  return records;
}

/// The sections that there are, in the header's order; the header is told of them.
std::vector<std::vector<std::byte>> encode_sections(const RankCapture& capture, json& header) {
  std::vector<std::vector<std::byte>> sections;
  for (const CaptureSection& section : capture_sections()) {
    std::vector<std::byte> bytes = section.encode(capture);
    if (bytes.empty()) continue;
    header["sections"].push_back({{"name", section.name}, {"bytes", bytes.size()}});
    sections.push_back(std::move(bytes));
  }
  return sections;
}

/// Takes the sections of a `list` in a header from the front of `rest`.
void take_sections(std::span<const std::byte>& rest, const json& list, const std::string& source, RankCapture& capture) {
  std::vector<std::string> taken;
  for (const json& one : list) {
    const auto& name = one.at("name").get_ref<const std::string&>();
    const auto num_bytes = one.at("bytes").get<uint64_t>();
    if (num_bytes > rest.size()) throw damaged(source, "its section " + shown(one.at("name")) + " is cut off");
    const std::span<const std::byte> bytes = rest.first(num_bytes);
    rest = rest.subspan(num_bytes);
    const auto known = std::ranges::find(capture_sections(), name, [](const CaptureSection& section) { return section.name; });
    if (known == capture_sections().end()) continue;
    if (std::ranges::find(taken, name) != taken.end()) throw damaged(source, "two sections " + shown(one.at("name")));
    known->decode(bytes, source + ": section " + name, capture);
    taken.push_back(name);
  }
}

std::string system_reason() { return std::error_code(errno, std::generic_category()).message(); }

std::filesystem::path rank_file(const std::filesystem::path& directory, int32_t rank) {
  return directory / ("rank-" + std::to_string(rank) + ".spans");
}

void check_placement(const CaptureInfo& info, const std::string& source) {
  const HolderFacts& placement = info.placement;
  if (placement.ranks.size() > 64) throw damaged(source, std::to_string(placement.ranks.size()) + " ranks that hold experts");
  for (const int32_t rank : placement.ranks) {
    if (rank < 0 || rank >= info.world_size) throw damaged(source, "experts held by rank " + std::to_string(rank));
  }
  for (const std::vector<uint64_t>& layer : placement.holders) {
    if (layer.size() != info.expert_rank.size())
      throw damaged(source, "holders of " + std::to_string(layer.size()) + " experts in a layer");
    for (const uint64_t holders : layer) {
      if (holders == 0 || static_cast<std::size_t>(std::bit_width(holders)) > placement.ranks.size())
        throw damaged(source, "an expert with holders " + std::to_string(holders));
    }
  }
}

void check_info(const CaptureInfo& info, const std::string& source) {
  constexpr int32_t kMaxRanks = 1 << 16;
  if (info.world_size < 1 || info.world_size > kMaxRanks)
    throw damaged(source, "world_size is " + std::to_string(info.world_size));
  for (const int32_t rank : info.expert_rank) {
    if (rank < 0 || rank >= info.world_size) throw damaged(source, "an expert on rank " + std::to_string(rank));
  }
  for (const std::vector<int64_t>& layer : info.expert_tokens) {
    if (layer.size() != info.expert_rank.size())
      throw damaged(source, "token counts of " + std::to_string(layer.size()) + " experts in a layer");
  }
  check_placement(info, source);
  if (info.worker_changes.size() > kMaxWorkerChanges)
    throw damaged(source, std::to_string(info.worker_changes.size()) + " changes of workers; " +
                              std::to_string(kMaxWorkerChanges) + " are kept at most");
  for (const auto& [why, num_steps] : info.selection) {
    if (num_steps < 1) throw damaged(source, std::to_string(num_steps) + " steps that were kept for " + shown(json(why)));
  }
}

void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  write_file_anew(path, [&](std::ostream& out) {
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  });
}

/// What older versions do not know stands beside the rest, only where there is something to say.
json info_json(const CaptureInfo& info) {
  json written = info;
  if (!info.placement.ranks.empty()) written["placement"] = info.placement;
  if (!info.worker_changes.empty()) written["worker_changes"] = info.worker_changes;
  if (!info.settings.empty()) written["settings"] = info.settings;
  if (!info.selection.empty()) written["selection"] = info.selection;
  return written;
}

CaptureInfo info_from(const json& read) {
  CaptureInfo info = read.get<CaptureInfo>();
  if (read.contains("placement")) read.at("placement").get_to(info.placement);
  if (read.contains("worker_changes")) read.at("worker_changes").get_to(info.worker_changes);
  if (read.contains("settings")) read.at("settings").get_to(info.settings);
  if (read.contains("selection")) read.at("selection").get_to(info.selection);
  return info;
}

}  // namespace

std::vector<int32_t> HolderFacts::ranks_of(std::size_t layer, std::size_t expert) const {
  std::vector<int32_t> found;
  if (layer >= holders.size()) return found;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if ((holders[layer].at(expert) >> r & 1) != 0) found.push_back(ranks[r]);
  }
  return found;
}

int64_t TickLine::to_ns(uint64_t ticks) const {
  const auto since_base = static_cast<int64_t>(ticks - base_ticks);  // may be negative
  return base_ns + std::llround(static_cast<double>(since_base) * ns_per_tick);
}

int64_t ClockAlignment::to_coordinator_ns(int64_t rank_ns) const {
  return rank_ns + std::llround(offset_ns + drift * static_cast<double>(rank_ns - reference_ns));
}

std::vector<std::byte> encode_rank_capture(const RankCapture& capture) {
  json described = header_of(capture);
  const std::vector<std::vector<std::byte>> sections = encode_sections(capture, described);
  const std::string header = described.dump();
  Preamble preamble{{}, sections.empty() ? kFormat : kFormatWithSections, kNumZones, header.size()};
  std::memcpy(preamble.magic, kCaptureMagic, sizeof kCaptureMagic);
  std::size_t size = sizeof preamble + header.size();
  for (const ThreadCapture& thread : capture.threads) size += thread.records.size() * sizeof(SpanRecord);
  for (const std::vector<std::byte>& section : sections) size += section.size();
  std::vector<std::byte> bytes(size);
  std::byte* at = bytes.data();
  const auto append = [&](const void* data, std::size_t count) {
    if (count > 0) std::memcpy(at, data, count);
    at += count;
  };
  append(&preamble, sizeof preamble);
  append(header.data(), header.size());
  for (const ThreadCapture& thread : capture.threads) append(thread.records.data(), thread.records.size() * sizeof(SpanRecord));
  for (const std::vector<std::byte>& section : sections) append(section.data(), section.size());
  return bytes;
}

RankCapture decode_rank_capture(std::span<const std::byte> bytes, const std::string& source) {
  Preamble preamble{};
  if (bytes.size() < sizeof preamble) throw damaged(source, std::to_string(bytes.size()) + " bytes are too few");
  std::memcpy(&preamble, bytes.data(), sizeof preamble);
  if (std::memcmp(preamble.magic, kCaptureMagic, sizeof kCaptureMagic) != 0)
    throw damaged(source, "it does not begin as a capture file");
  if (preamble.format != kFormat && preamble.format != kFormatWithSections)
    throw damaged(source, "format " + std::to_string(preamble.format));
  std::span<const std::byte> rest = bytes.subspan(sizeof preamble);
  if (preamble.header_bytes > rest.size()) throw damaged(source, "its header is cut off");
  const auto* text = reinterpret_cast<const char*>(rest.data());
  rest = rest.subspan(preamble.header_bytes);
  try {
    const json header = parse_json({text, preamble.header_bytes}, source, kCaptureJson);
    RankCapture capture = from_header(header);
    for (const json& thread : header.at("threads")) {
      const bool is_device = thread.value("is_device", false);
      capture.threads.push_back({.name = thread.at("name"),
                                 .is_device = is_device,
                                 .tid = thread.at("tid"),
                                 .num_lost = thread.at("num_lost"),
                                 .records = take_records(rest, thread.at("num_records").get<uint64_t>(), is_device, source)});
    }
    if (preamble.format == kFormatWithSections) take_sections(rest, header.at("sections"), source, capture);
    if (!rest.empty()) throw damaged(source, std::to_string(rest.size()) + " bytes behind its records");
    check_rank_numbers(capture, source);
    return capture;
  } catch (const json::exception& error) {
    throw damaged(source, std::string("a header that cannot be read: ") + error.what());
  }
}

std::string encode_capture_info(const CaptureInfo& info) {
  return info_json(info).dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

CaptureInfo decode_capture_info(std::string_view text, const std::string& source) {
  CaptureInfo info;
  try {
    info = info_from(parse_json(text, source, kCaptureJson));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw damaged(source, error.what());
  }
  check_info(info, source);
  check_info_numbers(info, source);
  return info;
}

void prepare_capture_folder(const std::filesystem::path& directory) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kFailedPrecondition, "trace folder " + directory.string() + " " + what);
  };
  std::error_code code;
  if (std::filesystem::exists(directory / "capture.json", code))
    refuse("holds a capture already; allowed: a new or an empty folder");
  std::filesystem::create_directories(directory, code);
  if (code) refuse("cannot be made: " + code.message());
  const std::filesystem::path probe = directory / ".writable";
  std::filesystem::remove(probe, code);  // it may be a link
  errno = 0;
  std::ofstream file(probe);
  file << "x";
  file.close();
  if (!file) refuse("cannot be written to: " + system_reason());
  std::filesystem::remove(probe, code);
}

void write_capture(const std::filesystem::path& directory, const Capture& capture) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  if (code) throw Error(ErrorCode::kUnavailable, "cannot make " + directory.string() + ": " + code.message());
  for (const RankCapture& rank : capture.ranks) {
    write_bytes(rank_file(directory, rank.rank), encode_rank_capture(rank));
  }
  if (!capture.routing.empty()) write_bytes(directory / "routing.ferryrt", capture.routing);
  const std::string info = encode_capture_info(capture.info);
  write_file_anew(directory / "capture.json", [&](std::ostream& out) { out << info; });  // last: a folder with it is complete
}

Capture read_capture(const std::filesystem::path& directory) {
  Capture capture;
  const std::filesystem::path info_path = directory / "capture.json";
  std::error_code code;
  const bool is_there = std::filesystem::exists(info_path, code);
  if (code) throw Error(ErrorCode::kUnavailable, directory.string() + " cannot be read: " + code.message());
  if (!is_there)
    throw Error(ErrorCode::kNotFound, directory.string() + " holds no capture; allowed: a folder with a capture.json");
  capture.info = decode_capture_info(read_text_file(info_path, kCaptureJson.bytes), info_path.string());
  for (int32_t r = 0; r < capture.info.world_size; ++r) {
    const std::filesystem::path path = rank_file(directory, r);
    const std::string bytes = read_text_file(path, kRankFileBytesMax);
    capture.ranks.push_back(decode_rank_capture(std::as_bytes(std::span(bytes)), path.string()));
    if (capture.ranks.back().rank != r) throw damaged(path.string(), "rank " + std::to_string(capture.ranks.back().rank));
  }
  check_worker_changes(capture.info, capture.ranks.front(), info_path.string());
  return capture;
}

}  // namespace ferry
