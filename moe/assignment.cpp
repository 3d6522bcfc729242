#include "moe/assignment.h"

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

}  // namespace

std::vector<std::byte> encode_assignment(uint32_t epoch, const RankExperts& experts) {
  std::vector<int32_t> numbers{static_cast<int32_t>(experts.size())};
  for (const std::vector<LogicalExpertId>& layer : experts) numbers.push_back(static_cast<int32_t>(layer.size()));
  for (const std::vector<LogicalExpertId>& layer : experts) {
    for (const LogicalExpertId expert : layer) numbers.push_back(expert.value);
  }
  std::vector<std::byte> message(sizeof(WireHeader) + numbers.size() * sizeof(int32_t));
  write_header({.kind = WireKind::kAssign, .map_epoch = epoch}, message);
  std::memcpy(message.data() + sizeof(WireHeader), numbers.data(), numbers.size() * sizeof(int32_t));
  return message;
}

int64_t max_assignment_bytes(int64_t num_layers, int64_t num_experts) {
  return static_cast<int64_t>(sizeof(WireHeader)) + 4 * (1 + num_layers * (1 + num_experts));
}

Assignment decode_assignment(std::span<const std::byte> message, int64_t num_layers, int64_t num_experts) {
  const WireHeader header = read_header_of_any_epoch(message);
  if (header.kind != WireKind::kAssign) refuse_assignment("kind", static_cast<int64_t>(header.kind), "7");
  Int32Reader reader(message.subspan(sizeof(WireHeader)));
  Assignment assignment{.epoch = header.map_epoch, .experts = {}};
  const int32_t got_layers = reader.next("number of layers", 0, num_layers);
  if (got_layers != 0 && got_layers != num_layers)
    refuse_assignment("number of layers", got_layers, "0 or " + std::to_string(num_layers));
  std::vector<int32_t> counts(static_cast<std::size_t>(got_layers));
  for (int32_t& count : counts) count = reader.next("experts of a layer", 0, num_experts);
  for (const int32_t count : counts) {
    std::vector<bool> seen(static_cast<std::size_t>(num_experts), false);
    std::vector<LogicalExpertId>& layer = assignment.experts.emplace_back();
    for (int32_t e = 0; e < count; ++e) {
      const int32_t expert = reader.next("expert", 0, num_experts - 1);
      if (seen[static_cast<std::size_t>(expert)]) refuse_assignment("twice expert", expert, "each once");
      seen[static_cast<std::size_t>(expert)] = true;
      layer.push_back({expert});
    }
  }
  reader.end();
  return assignment;
}

}  // namespace ferry
