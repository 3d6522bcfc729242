#include "moe/assignment.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

[[noreturn]] void refuse_assignment(const std::string& what, int64_t got, const std::string& allowed) {
  throw Error(ErrorCode::kInternal, "an assignment of experts: " + what + " " + std::to_string(got) + "; allowed: " + allowed);
}

/// Numbers of a message, one after another.
class Int32Reader {
 public:
  explicit Int32Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  int32_t next(const char* what, int64_t least, int64_t most) {
    int32_t value = 0;
    if (bytes_.size() < sizeof value) refuse_assignment("bytes left", std::ssize(bytes_), "4 or more");
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    if (value < least || value > most) refuse_assignment(what, value, std::to_string(least) + " to " + std::to_string(most));
    return value;
  }
  void end() const {
    if (!bytes_.empty()) refuse_assignment("bytes behind it", std::ssize(bytes_), "0");
  }

 private:
  std::span<const std::byte> bytes_;
};

void put_list(std::vector<int32_t>& numbers, const RankExperts& list) {
  for (const std::vector<LogicalExpertId>& layer : list) numbers.push_back(static_cast<int32_t>(layer.size()));
  for (const std::vector<LogicalExpertId>& layer : list) {
    for (const LogicalExpertId expert : layer) numbers.push_back(expert.value);
  }
}

RankExperts read_list(Int32Reader& reader, int32_t num_layers, int64_t num_experts) {
  std::vector<int32_t> counts(static_cast<std::size_t>(num_layers));
  for (int32_t& count : counts) count = reader.next("experts of a layer", 0, num_experts);
  RankExperts list;
  for (const int32_t count : counts) {
    std::vector<bool> seen(static_cast<std::size_t>(num_experts), false);
    std::vector<LogicalExpertId>& layer = list.emplace_back();
    for (int32_t e = 0; e < count; ++e) {
      const int32_t expert = reader.next("expert", 0, num_experts - 1);
      if (seen[static_cast<std::size_t>(expert)]) refuse_assignment("twice expert", expert, "each once");
      seen[static_cast<std::size_t>(expert)] = true;
      layer.push_back({expert});
    }
  }
  return list;
}

constexpr int64_t kHeaderBytes = sizeof(WireHeader);

}  // namespace

std::vector<std::byte> encode_assignment(const Assignment& assignment) {
  std::vector<int32_t> numbers{static_cast<int32_t>(assignment.experts.size())};
  put_list(numbers, assignment.experts);
  put_list(numbers, assignment.canaries.empty() ? RankExperts(assignment.experts.size()) : assignment.canaries);
  std::vector<std::byte> message(kHeaderBytes + numbers.size() * sizeof(int32_t));
  write_header({.kind = WireKind::kAssign, .map_epoch = assignment.epoch}, message);
  std::memcpy(message.data() + kHeaderBytes, numbers.data(), numbers.size() * sizeof(int32_t));
  return message;
}

int64_t max_assignment_bytes(int64_t num_layers, int64_t num_experts) {
  return kHeaderBytes + 4 * (1 + 2 * num_layers * (1 + num_experts));
}

Assignment decode_assignment(std::span<const std::byte> message, int64_t num_layers, int64_t num_experts) {
  const WireHeader header = read_header_of_any_epoch(message);
  if (header.kind != WireKind::kAssign) refuse_assignment("kind", static_cast<int64_t>(header.kind), "7");
  Int32Reader reader(message.subspan(kHeaderBytes));
  Assignment assignment{.epoch = header.map_epoch, .experts = {}, .canaries = {}};
  const int32_t got_layers = reader.next("number of layers", 0, num_layers);
  if (got_layers != 0 && got_layers != num_layers)
    refuse_assignment("number of layers", got_layers, "0 or " + std::to_string(num_layers));
  assignment.experts = read_list(reader, got_layers, num_experts);
  assignment.canaries = read_list(reader, got_layers, num_experts);
  reader.end();
  return assignment;
}

std::vector<std::byte> encode_preparation(const Preparation& preparation) {
  const bool is_done = preparation.complaint.empty();
  const std::string text = preparation.complaint.substr(0, kMaxReasonBytes);
  std::vector<uint64_t> songs{preparation.voice};
  songs.insert(songs.end(), preparation.canaries.begin(), preparation.canaries.end());
  const std::span<const std::byte> body = is_done ? std::as_bytes(std::span(songs)) : std::as_bytes(std::span(text));
  std::vector<std::byte> message(kHeaderBytes + body.size());
  write_header({.kind = WireKind::kPrepared, .map_epoch = preparation.epoch, .flags = is_done ? uint8_t{0} : kCannotPrepare},
               message);
  std::ranges::copy(body, message.begin() + kHeaderBytes);
  return message;
}

int64_t max_preparation_bytes(int64_t num_layers, int64_t num_experts) {
  return kHeaderBytes + std::max<int64_t>(8 * (1 + num_layers * num_experts), kMaxReasonBytes);
}

Preparation decode_preparation(std::span<const std::byte> message) {
  const WireHeader header = read_header_of_any_epoch(message);
  if (header.kind != WireKind::kPrepared) refuse_assignment("answer's kind", static_cast<int64_t>(header.kind), "8");
  const std::span<const std::byte> body = message.subspan(kHeaderBytes);
  Preparation preparation{.epoch = header.map_epoch, .canaries = {}, .complaint = {}};
  if (header.flags == kCannotPrepare) {
    if (body.size() > kMaxReasonBytes)
      refuse_assignment("bytes of a complaint", std::ssize(body), "up to " + std::to_string(kMaxReasonBytes));
    preparation.complaint.assign(reinterpret_cast<const char*>(body.data()), body.size());
    if (preparation.complaint.empty()) preparation.complaint = "for a reason that it does not tell";
    return preparation;
  }
  if (body.empty() || body.size() % sizeof(uint64_t) != 0)
    refuse_assignment("bytes of a voice and canaries", std::ssize(body), "a multiple of 8 from 8 on");
  const std::span<const std::byte> canaries = body.subspan(sizeof preparation.voice);
  std::memcpy(&preparation.voice, body.data(), sizeof preparation.voice);
  preparation.canaries.resize(canaries.size() / sizeof(uint64_t));
  if (!canaries.empty()) std::memcpy(preparation.canaries.data(), canaries.data(), canaries.size());
  return preparation;
}

}  // namespace ferry
