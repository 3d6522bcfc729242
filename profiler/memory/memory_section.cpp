#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "profiler/memory/memory_samples.h"
#include "profiler/section_bytes.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {

using nlohmann::json;

namespace {

// A section: bytes of its JSON header, the header, and one row a sample: ticks, and bytes of each kind of its `columns`.
constexpr JsonLimits kHeaderJson{.depth = 4, .bytes = 64 << 10, .values = 1024};
constexpr std::size_t kMaxColumns = 256;

using Columns = std::vector<std::optional<std::size_t>>;  // index of a kind; none of one that this version does not know

Error damaged(const std::string& source, const std::string& what) {
  return {ErrorCode::kInvalidArgument, source + ": " + what + "; allowed: memory samples that Ferry wrote"};
}

std::optional<std::size_t> find_kind(std::string_view name) {
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    if (name == kMemoryKinds[k].name) return k;
  }
  return std::nullopt;
}

Columns take_columns(const json& header, const std::string& source) {
  Columns columns;
  for (const json& name : header.at("columns")) {
    const auto kind = find_kind(name.get<std::string>());
    if (kind && std::ranges::find(columns, kind) != columns.end())
      throw damaged(source, std::string("two columns of ") + kMemoryKinds[*kind].name);
    columns.push_back(kind);
  }
  if (columns.size() > kMaxColumns) throw damaged(source, std::to_string(columns.size()) + " columns");
  return columns;
}

MemorySample take_sample(std::span<const std::byte>& rest, const Columns& columns, const std::string& source) {
  MemorySample sample{.ticks = take_raw<uint64_t>(rest)};
  sample.bytes.fill(kNotKnown);
  for (const std::optional<std::size_t> column : columns) {
    const auto bytes = take_raw<int64_t>(rest);
    constexpr int64_t kMostBytes = int64_t{1} << 50;
    if (bytes < kNotKnown || bytes > kMostBytes) throw damaged(source, "a sample of " + std::to_string(bytes) + " bytes");
    if (column) sample.bytes[*column] = bytes;
  }
  return sample;
}

}  // namespace

std::vector<std::byte> encode_memory(const MemoryCapture& memory) {
  if (memory == MemoryCapture{}) return {};
  std::vector<std::size_t> columns;
  json header = {{"columns", json::array()}, {"num_lost", memory.num_lost}};
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    const auto is_known = [k](const MemorySample& sample) { return sample.bytes[k] != kNotKnown; };
    if (!std::ranges::any_of(memory.samples, is_known)) continue;
    columns.push_back(k);
    header["columns"].push_back(kMemoryKinds[k].name);
  }
  const std::string text = header.dump();
  std::vector<std::byte> bytes;
  append_raw(bytes, uint64_t{text.size()});
  const auto text_bytes = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), text_bytes.begin(), text_bytes.end());
  for (const MemorySample& sample : memory.samples) {
    append_raw(bytes, sample.ticks);
    for (const std::size_t column : columns) append_raw(bytes, sample.bytes[column]);
  }
  return bytes;
}

MemoryCapture decode_memory(std::span<const std::byte> bytes, const std::string& source) {
  if (bytes.size() < sizeof(uint64_t)) throw damaged(source, std::to_string(bytes.size()) + " bytes are too few");
  const auto header_bytes = take_raw<uint64_t>(bytes);
  if (header_bytes > bytes.size()) throw damaged(source, "its header is cut off");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), header_bytes);
  std::span<const std::byte> rest = bytes.subspan(header_bytes);
  MemoryCapture memory;
  try {
    const json header = parse_json(text, source, kHeaderJson);
    header.at("num_lost").get_to(memory.num_lost);
    const Columns columns = take_columns(header, source);
    const std::size_t row_bytes = (1 + columns.size()) * sizeof(uint64_t);
    if (rest.size() % row_bytes != 0) throw damaged(source, std::to_string(rest.size() % row_bytes) + " bytes behind its rows");
    if (rest.size() / row_bytes > kMaxMemorySamples)
      throw damaged(source, std::to_string(rest.size() / row_bytes) + " samples; " + std::to_string(kMaxMemorySamples) +
                                " are kept at most");
    while (!rest.empty()) memory.samples.push_back(take_sample(rest, columns, source));
  } catch (const json::exception& error) {
    throw damaged(source, std::string("a header that cannot be read: ") + error.what());
  }
  return memory;
}

}  // namespace ferry
