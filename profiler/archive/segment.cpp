#include "profiler/archive/segment.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "profiler/archive/packed_records.h"
#include "profiler/capture_check.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/text_file.h"

namespace ferry {

using nlohmann::json;

namespace {

constexpr char kMagic[8] = {'F', 'E', 'R', 'R', 'Y', 'S', 'E', 'G'};
constexpr uint32_t kPlain = 1, kPacked = 2;  // formats
constexpr JsonLimits kHeadJson{.depth = 8, .bytes = kMaxHeadBytes, .values = int64_t{1} << 20};
constexpr JsonLimits kEntryJson{.depth = 3, .bytes = 4096, .values = 64};
constexpr int64_t kRunBytesMax = int64_t{64} << 20;
constexpr std::size_t kMaxNameBytes = 128;
constexpr int64_t kMostTime = int64_t{1} << 61;                 // ns: differences of two, twice, do not overflow
constexpr double kMostSeconds = 1e8;                            // that a step takes
constexpr std::size_t kMaxExpertCounts = std::size_t{1} << 24;  // layers times experts

struct Preamble {
  char magic[8];
  uint32_t format;
  uint32_t head_bytes;
};
static_assert(sizeof(Preamble) == 16);

Error damaged(const std::string& source, const std::string& what) {
  return {ErrorCode::kInvalidArgument, source + ": " + what + "; allowed: kept steps that Ferry wrote"};
}

/// A file's name is a name: it leads nowhere else.
std::string name_from(const json& value, const std::string& source) {
  auto name = value.get<std::string>();
  const bool is_name =
      !name.empty() && name.size() <= kMaxNameBytes &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == std::string::npos &&
      name[0] != '.';
  if (!is_name) throw damaged(source, "a file's name " + shown(value));
  return name;
}

int64_t count_from(const json& head, const char* field, const std::string& source) {
  const json& value = head.at(field);
  if (!value.is_number_integer() || value.get<int64_t>() < 0) throw damaged(source, std::string(field) + " is " + shown(value));
  return value.get<int64_t>();
}

json entry_json(const SegmentEntry& entry) {
  return {{"run", entry.run},
          {"time_ns", entry.time_ns},
          {"why", kept_for_name(entry.why)},
          {"step", entry.facts.step},
          {"phase", phase_name(entry.facts.phase)},
          {"rows", entry.facts.num_rows},
          {"sequences", entry.facts.num_sequences},
          {"keys", entry.facts.num_keys},
          {"seconds", entry.facts.seconds}};
}

Phase phase_from(const json& value, const std::string& source) {
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
    if (value == phase_name(phase)) return phase;
  }
  throw damaged(source, "phase is " + shown(value));
}

SegmentEntry entry_from(const json& head, const std::string& source) {
  SegmentEntry entry;
  entry.run = name_from(head.at("run"), source);
  entry.time_ns = count_from(head, "time_ns", source);
  const std::optional<KeptFor> why = kept_for(head.at("why").get<std::string>());
  if (!why) throw damaged(source, "why is " + shown(head.at("why")));
  entry.why = *why;
  entry.facts = {.step = count_from(head, "step", source),
                 .seconds = head.at("seconds").get<double>(),
                 .phase = phase_from(head.at("phase"), source),
                 .num_rows = count_from(head, "rows", source),
                 .num_sequences = count_from(head, "sequences", source),
                 .num_keys = count_from(head, "keys", source)};
  if (entry.time_ns > kMostTime || entry.facts.step > UINT32_MAX) throw damaged(source, "a time or a step beyond all");
  if (!(entry.facts.seconds >= 0 && entry.facts.seconds <= kMostSeconds))
    throw damaged(source, "seconds is " + shown(head.at("seconds")));
  return entry;
}

/// Experts that had rows, by layer: [expert, rows, expert, rows, …].
json sparse_tokens(const CaptureInfo& info) {
  json layers = json::array();
  for (const std::vector<int64_t>& tokens : info.expert_tokens) {
    json layer = json::array();
    for (std::size_t e = 0; e < tokens.size(); ++e) {
      if (tokens[e] == 0) continue;
      layer.push_back(e);
      layer.push_back(tokens[e]);
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

std::vector<std::vector<int64_t>> tokens_from(const json& layers, std::size_t num_experts, const std::string& source) {
  std::vector<std::vector<int64_t>> tokens;
  if (layers.size() > kMaxExpertCounts / std::max<std::size_t>(num_experts, 1))
    throw damaged(source, "rows of experts of " + std::to_string(layers.size()) + " layers");
  for (const json& layer : layers) {
    std::vector<int64_t> counts(num_experts);
    if (layer.size() % 2 != 0) throw damaged(source, "rows of experts are not pairs");
    for (std::size_t i = 0; i < layer.size(); i += 2) {
      const auto expert = layer[i].get<std::size_t>();
      if (expert >= num_experts) throw damaged(source, "rows of expert " + shown(layer[i]));
      counts[expert] = layer[i + 1].get<int64_t>();
    }
    tokens.push_back(std::move(counts));
  }
  return tokens;
}

json changes_json(const std::vector<WorkerChangeFacts>& changes) {
  json list = json::array();
  for (const WorkerChangeFacts& c : changes)
    list.push_back({{"ticks", c.ticks}, {"rank", c.rank}, {"from", c.from}, {"to", c.to}, {"reason", c.reason}});
  return list;
}

std::vector<WorkerChangeFacts> changes_from(const json& list, const std::string& source) {
  if (list.size() > kMaxWorkerChanges) throw damaged(source, "more changes of workers than are kept");
  std::vector<WorkerChangeFacts> changes;
  for (const json& c : list) {
    changes.push_back(
        {.ticks = c.at("ticks"), .rank = c.at("rank"), .from = c.at("from"), .to = c.at("to"), .reason = c.at("reason")});
  }
  return changes;
}

struct Head {
  uint32_t format = 0;
  json fields;
};

/// The head of a segment of which all or the first bytes are there, and what follows.
std::pair<Head, std::string_view> take_head(std::string_view bytes, const std::string& source) {
  Preamble preamble{};
  if (bytes.size() < sizeof preamble) throw damaged(source, std::to_string(bytes.size()) + " bytes are too few");
  std::memcpy(&preamble, bytes.data(), sizeof preamble);
  if (std::memcmp(preamble.magic, kMagic, sizeof kMagic) != 0) throw damaged(source, "it does not begin as kept steps");
  if (preamble.format != kPlain && preamble.format != kPacked)
    throw damaged(source, "format " + std::to_string(preamble.format));
  if (preamble.head_bytes > kMaxHeadBytes || preamble.head_bytes > bytes.size() - sizeof preamble)
    throw damaged(source, "a head of " + std::to_string(preamble.head_bytes) + " bytes");
  const std::string_view text = bytes.substr(sizeof preamble, preamble.head_bytes);
  return {Head{preamble.format, parse_json(text, source, kHeadJson)}, bytes.substr(sizeof preamble + preamble.head_bytes)};
}

/// The parts of a plain segment.
std::vector<std::vector<std::byte>> split_parts(std::string_view bytes, std::span<const std::size_t> sizes,
                                                const std::string& source) {
  std::vector<std::vector<std::byte>> parts;
  for (const std::size_t num_bytes : sizes) {
    if (num_bytes > bytes.size()) throw damaged(source, "it is cut off");
    const auto part = std::as_bytes(std::span(bytes.substr(0, num_bytes)));
    parts.emplace_back(part.begin(), part.end());
    bytes.remove_prefix(num_bytes);
  }
  if (!bytes.empty()) throw damaged(source, std::to_string(bytes.size()) + " bytes behind its ranks");
  return parts;
}

}  // namespace

std::string entry_text(const SegmentEntry& entry) {
  json line = entry_json(entry);
  line["file"] = entry.file;
  line["bytes"] = entry.bytes;
  return line.dump();
}

SegmentEntry parse_entry(std::string_view text, const std::string& source) try {
  const json line = parse_json(text, source, kEntryJson);
  SegmentEntry entry = entry_from(line, source);
  entry.file = name_from(line.at("file"), source);
  entry.bytes = count_from(line, "bytes", source);
  return entry;
} catch (const json::exception& error) {
  throw damaged(source, error.what());
}

CaptureInfo run_info(const CaptureInfo& info) {
  CaptureInfo run = info;
  run.level = TraceLevel::kSteps;
  run.start_epoch_ns = 0;
  run.expert_tokens.clear();
  run.worker_changes.clear();
  return run;
}

std::string encode_segment(const SegmentEntry& entry, const Capture& capture) {
  std::vector<std::vector<std::byte>> parts;
  json sizes = json::array();
  std::size_t num_bytes = 0;
  for (const RankCapture& rank : capture.ranks) {
    parts.push_back(encode_rank_capture(rank));
    sizes.push_back(parts.back().size());
    num_bytes += parts.back().size();
  }
  if (num_bytes > kMaxUnpackedBytes) {
    throw Error(ErrorCode::kResourceExhausted, "step " + std::to_string(entry.facts.step) + " has " +
                                                   std::to_string(num_bytes) + " bytes; allowed: up to " +
                                                   std::to_string(kMaxUnpackedBytes));
  }
  json head = entry_json(entry);
  head["level"] = static_cast<int>(capture.info.level);
  head["start_epoch_ns"] = capture.info.start_epoch_ns;
  head["expert_tokens"] = sparse_tokens(capture.info);
  head["worker_changes"] = changes_json(capture.info.worker_changes);
  head["parts"] = std::move(sizes);
  const std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);
  Preamble preamble{.magic = {}, .format = kPacked, .head_bytes = static_cast<uint32_t>(text.size())};
  std::memcpy(preamble.magic, kMagic, sizeof kMagic);
  return std::string(reinterpret_cast<const char*>(&preamble), sizeof preamble) + text + pack_parts(parts);
}

SegmentEntry read_segment_entry(std::string_view bytes, const std::string& source) try {
  return entry_from(take_head(bytes, source).first.fields, source);
} catch (const json::exception& error) {
  throw damaged(source, error.what());
}

Capture decode_segment(std::string_view bytes, const CaptureInfo& run, const std::string& source) try {
  const auto [form, rest] = take_head(bytes, source);
  const json& head = form.fields;
  Capture capture{.info = run, .ranks = {}, .routing = {}};
  if (std::ssize(head.at("parts")) != run.world_size) throw damaged(source, std::to_string(head.at("parts").size()) + " ranks");
  const auto sizes = head.at("parts").get<std::vector<std::size_t>>();
  for (const std::vector<std::byte>& part :
       form.format == kPacked ? unpack_parts(rest, sizes, source) : split_parts(rest, sizes, source)) {
    const std::string rank_source = source + ": rank " + std::to_string(capture.ranks.size());
    capture.ranks.push_back(decode_rank_capture(part, rank_source));
    if (capture.ranks.back().rank + 1 != std::ssize(capture.ranks)) throw damaged(rank_source, "it is another rank's");
  }
  const int64_t level = count_from(head, "level", source);
  if (level > static_cast<int64_t>(TraceLevel::kThreads)) throw damaged(source, "level " + std::to_string(level));
  capture.info.level = static_cast<TraceLevel>(level);
  capture.info.start_epoch_ns = count_from(head, "start_epoch_ns", source);
  capture.info.expert_tokens = tokens_from(head.at("expert_tokens"), run.expert_rank.size(), source);
  capture.info.worker_changes = changes_from(head.at("worker_changes"), source);
  check_info_numbers(capture.info, source);
  check_worker_changes(capture.info, capture.ranks.front(), source);
  capture.info.selection = {{kept_for_name(entry_from(head, source).why), 1}};
  return capture;
} catch (const json::exception& error) {
  throw damaged(source, error.what());
}

Capture read_segment(const std::filesystem::path& path) {
  const std::string bytes = read_text_file(path, kMaxSegmentBytes);
  const SegmentEntry entry = read_segment_entry(bytes, path.string());
  const std::filesystem::path run = path.parent_path() / entry.run;
  return decode_segment(bytes, decode_capture_info(read_text_file(run, kRunBytesMax), run.string()), path.string());
}

}  // namespace ferry
