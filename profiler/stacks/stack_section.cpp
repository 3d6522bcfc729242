#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "profiler/section_bytes.h"
#include "profiler/stacks/stack_samples.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {

using nlohmann::json;

namespace {

// A section: bytes of its JSON header, the header with the frames' names, the stacks (each its depth, then its frames), and one
// row a sample.
constexpr JsonLimits kHeaderJson{.depth = 4, .bytes = int64_t{256} << 20, .values = int64_t{4} << 16};
constexpr uint8_t kInZoneFlag = 1;

struct SampleRow {
  uint64_t ticks;
  uint32_t stack;
  int32_t tid;
  uint16_t periods;
  Zone zone;
  uint8_t flags;
  uint32_t reserved;
};
static_assert(sizeof(SampleRow) == 24);

Error damaged(const std::string& source, const std::string& what) {
  return {ErrorCode::kInvalidArgument, source + ": " + what + "; allowed: stacks that Ferry wrote"};
}

void append(std::vector<std::byte>& bytes, const void* data, std::size_t count) {
  const auto* begin = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), begin, begin + count);
}

template <class Value>
Value take(std::span<const std::byte>& rest, const std::string& source) {
  if (rest.size() < sizeof(Value)) throw damaged(source, "it is cut off");
  return take_raw<Value>(rest);
}

json header_of(const StackCapture& stacks) {
  json frames = json::array();
  for (const StackFrame& frame : stacks.frames) frames.push_back(json::array({frame.function, frame.module}));
  return {{"period_ns", stacks.period_ns},      {"absent", stacks.absent},
          {"num_lost", stacks.num_lost},        {"frames", std::move(frames)},
          {"num_stacks", stacks.stacks.size()}, {"num_samples", stacks.samples.size()}};
}

void check_count(const std::string& source, const char* what, uint64_t count, std::size_t most) {
  if (count > most)
    throw damaged(source, std::to_string(count) + " " + what + "; " + std::to_string(most) + " are kept at most");
}

std::vector<StackFrame> take_frames(const json& list, const std::string& source) {
  check_count(source, "functions", list.size(), kMaxStackFrames);
  std::vector<StackFrame> frames;
  for (const json& one : list) {
    StackFrame frame{one.at(0).get<std::string>(), one.at(1).get<std::string>()};
    check_count(source, "bytes of a name", std::max(frame.function.size(), frame.module.size()), kMaxFrameName);
    frames.push_back(std::move(frame));
  }
  return frames;
}

std::vector<uint32_t> take_stack(std::span<const std::byte>& rest, std::size_t num_frames, const std::string& source) {
  const auto depth = take<uint32_t>(rest, source);
  check_count(source, "functions in a stack", depth, kMaxStackDepth);
  if (depth == 0) throw damaged(source, "a stack without a function");
  std::vector<uint32_t> stack(depth);
  for (uint32_t& frame : stack) {
    frame = take<uint32_t>(rest, source);
    if (frame >= num_frames) throw damaged(source, "a stack with function " + std::to_string(frame));
  }
  return stack;
}

StackSample take_sample(std::span<const std::byte>& rest, std::size_t num_stacks, const std::string& source) {
  const auto row = take<SampleRow>(rest, source);
  if (row.stack >= num_stacks || static_cast<int>(row.zone) >= kNumZones || row.periods == 0)
    throw damaged(source, "a sample of stack " + std::to_string(row.stack) + ", zone " +
                              std::to_string(static_cast<int>(row.zone)) + " and " + std::to_string(row.periods) + " periods");
  return {row.ticks, row.stack, row.tid, row.zone, (row.flags & kInZoneFlag) != 0, row.periods};
}

}  // namespace

std::vector<std::byte> encode_stacks(const StackCapture& stacks) {
  if (stacks == StackCapture{}) return {};
  const std::string header = header_of(stacks).dump(-1, ' ', false, json::error_handler_t::replace);
  std::vector<std::byte> bytes;
  const uint64_t header_bytes = header.size();
  append_raw(bytes, header_bytes);
  append(bytes, header.data(), header.size());
  for (const std::vector<uint32_t>& stack : stacks.stacks) {
    const auto depth = static_cast<uint32_t>(stack.size());
    append_raw(bytes, depth);
    append(bytes, stack.data(), stack.size() * sizeof(uint32_t));
  }
  for (const StackSample& sample : stacks.samples) {
    const SampleRow row{
        sample.ticks, sample.stack, sample.tid, sample.periods, sample.zone, sample.is_in_zone ? kInZoneFlag : uint8_t{0}, 0};
    append_raw(bytes, row);
  }
  return bytes;
}

StackCapture decode_stacks(std::span<const std::byte> bytes, const std::string& source) {
  std::span<const std::byte> rest = bytes;
  const auto header_bytes = take<uint64_t>(rest, source);
  if (header_bytes > rest.size()) throw damaged(source, "its header is cut off");
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), header_bytes);
  rest = rest.subspan(header_bytes);
  try {
    const json header = parse_json(text, source, kHeaderJson);
    StackCapture stacks{.period_ns = header.at("period_ns"),
                        .absent = header.at("absent"),
                        .frames = take_frames(header.at("frames"), source),
                        .num_lost = header.at("num_lost")};
    if (!header.at("num_lost").is_number_unsigned()) throw damaged(source, "a count of lost samples that is none");
    constexpr int64_t kLongestPeriodNs = 100'000'000;
    if (stacks.period_ns < 0 || stacks.period_ns > kLongestPeriodNs)
      throw damaged(source, "a period of " + std::to_string(stacks.period_ns) + " ns");
    const auto num_stacks = header.at("num_stacks").get<uint64_t>(), num_samples = header.at("num_samples").get<uint64_t>();
    check_count(source, "stacks", num_stacks, kMaxStacks);
    check_count(source, "samples", num_samples, kMaxStackSamples);
    for (uint64_t i = 0; i < num_stacks; ++i) stacks.stacks.push_back(take_stack(rest, stacks.frames.size(), source));
    for (uint64_t i = 0; i < num_samples; ++i) stacks.samples.push_back(take_sample(rest, stacks.stacks.size(), source));
    if (!rest.empty()) throw damaged(source, std::to_string(rest.size()) + " bytes behind its samples");
    return stacks;
  } catch (const json::exception& error) {
    throw damaged(source, std::string("a header that cannot be read: ") + error.what());
  }
}

}  // namespace ferry
