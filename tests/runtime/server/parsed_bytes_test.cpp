#include "runtime/server/parsed_bytes.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/struct.pb.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ferry/v1/experts.pb.h"
#include "ferry/v1/inference.pb.h"
#include "tests/support/allocation_count.h"
#include "vllm/engine.pb.h"
#include "vllm/inference.pb.h"

// Measured by two instruments: what protobuf says that a parsed message takes, and what the allocator gave while it was parsed.

namespace ferry {
namespace {

using google::protobuf::Message;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();

/// The bytes that `write` writes.
std::string written(const std::function<void(CodedOutputStream&)>& write) {
  std::string bytes;
  StringOutputStream stream(&bytes);
  CodedOutputStream output(&stream);
  write(output);
  output.Trim();
  return bytes;
}

std::string times(int64_t count, const std::string& bytes) {
  std::string all;
  for (int64_t i = 0; i < count; ++i) all += bytes;
  return all;
}

/// A field of bytes; of a number below 16.
std::string field(int number, const std::string& contents) {
  return written([&](CodedOutputStream& output) {
    output.WriteTag(static_cast<uint32_t>(number) << 3 | 2);
    output.WriteVarint32(static_cast<uint32_t>(contents.size()));
    output.WriteString(contents);
  });
}

/// In pieces of `piece` bytes, as they come from a network.
int64_t counted(const google::protobuf::Descriptor& type, const std::string& bytes, int64_t most = kNoBound, int piece = -1) {
  ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), piece);
  return ParsedBytes(type).count(stream, most);
}

struct Measured {
  int64_t said = 0;       // by protobuf, bytes
  int64_t allocated = 0;  // bytes, without what the allocator keeps for itself
  int64_t at_most = 0;    // likewise, at any moment of parsing
  bool is_message = false;
};

template <class Parsed>
Measured measure(const std::string& bytes) {
  Measured measured;
  test::take_most_live_bytes();
  const int64_t before = test::num_live_bytes();
  const auto message = std::make_unique<Parsed>();
  measured.is_message = message->ParseFromString(bytes);
  measured.allocated = test::num_live_bytes() - before;
  measured.at_most = test::take_most_live_bytes() - before;
  measured.said = static_cast<int64_t>(message->SpaceUsedLong());
  return measured;
}

constexpr int64_t kSlack = 64;  // bytes, of small messages

/// Within the half and the double of what was allocated. Protobuf's own account leaves out what the allocator keeps for itself.
template <class Parsed>
void expect_close(const std::string& what, const std::string& bytes) {
  SCOPED_TRACE(what);
  const Measured real = measure<Parsed>(bytes);
  const int64_t estimate = counted(*Parsed::descriptor(), bytes);
  EXPECT_TRUE(real.is_message);
  EXPECT_GE(estimate + kSlack, real.said);
  EXPECT_LE(estimate - kSlack, real.said * 5 / 2);
  EXPECT_GE(estimate, real.allocated * 2 / 3);
  EXPECT_LE(estimate, real.allocated * 2);
  EXPECT_GE(estimate, real.at_most / 2);
  for (const int piece : {1, 7, 4096}) EXPECT_EQ(counted(*Parsed::descriptor(), bytes, kNoBound, piece), estimate);
}

TEST(ParsedBytes, ListsOfSmallParts) {
  for (const int64_t count : {1, 3, 100, 5'000, 70'000}) {
    expect_close<v1::SetPlacementRequest>("layers", times(count, field(2, "")));
    expect_close<v1::SetPlacementRequest>("ranks", field(2, times(count, field(1, ""))));
    expect_close<v1::GenerateRequest>("stop strings", field(4, times(count, field(8, ""))));
    expect_close<v1::GenerateRequest>("media", times(count, field(6, "")));
    expect_close<::vllm::AbortRequest>("ids of requests", times(count, field(1, "some id of 20 bytes!")));
    expect_close<::vllm::grpc::engine::GenerateRequest>("of nothing", times(count, field(11, "")));
  }
}

TEST(ParsedBytes, ListsOfNumbers) {
  for (const int64_t count : {1, 100, 70'000}) {
    v1::GenerateRequest request;
    for (int64_t i = 0; i < count; ++i) request.mutable_token_ids()->add_ids(static_cast<int32_t>(i));
    expect_close<v1::GenerateRequest>("packed", request.SerializeAsString());
    expect_close<v1::GenerateRequest>("a byte each", field(3, field(1, times(count, "\x05"))));
    expect_close<v1::GenerateRequest>("not packed", field(3, times(count, "\x08\x05")));
    v1::GetExpertLoadResponse load;
    for (int64_t i = 0; i < count; ++i) load.add_layers()->add_rows(0.5);
    for (int64_t i = 0; i < count; ++i) load.mutable_layers(0)->add_rows(0.5);
    expect_close<v1::GetExpertLoadResponse>("of 8 bytes", load.SerializeAsString());
  }
}

TEST(ParsedBytes, Maps) {
  for (const int64_t count : {1, 5, 100, 70'000}) {
    v1::GenerateRequest request;
    v1::GetLoadResponse load;
    ::vllm::GenerateRequest transfer;
    for (int64_t i = 0; i < count; ++i) {
      (*request.mutable_sampling()->mutable_logit_bias())[static_cast<int32_t>(i)] = 1;
      (*load.mutable_prefix_cache()->mutable_misses())["a name: " + std::to_string(i)] = 1;
      (*transfer.mutable_kv()->mutable_kv_transfer_params()->mutable_fields())[std::to_string(i)].set_bool_value(true);
    }
    expect_close<v1::GenerateRequest>("by number", request.SerializeAsString());
    expect_close<v1::GetLoadResponse>("by name", load.SerializeAsString());
    expect_close<::vllm::GenerateRequest>("of messages", transfer.SerializeAsString());
  }
}

TEST(ParsedBytes, ManyShortLists) {
  google::protobuf::ListValue maps;
  ::vllm::grpc::engine::OutputLogProbs numbers;
  for (int i = 0; i < 5000; ++i) {
    (*maps.add_values()->mutable_struct_value()->mutable_fields())["a"].set_bool_value(true);
    numbers.add_top_logprobs()->add_values(1);
  }
  expect_close<google::protobuf::ListValue>("maps of one", maps.SerializeAsString());
  expect_close<::vllm::grpc::engine::OutputLogProbs>("numbers, one each", numbers.SerializeAsString());
  expect_close<v1::SetPlacementRequest>("lists of one", times(5000, field(2, field(1, field(2, "\x05")))));
  expect_close<v1::SetPlacementRequest>("lists of no numbers", times(5000, field(2, field(1, field(2, "")))));
}

TEST(ParsedBytes, FieldsThatNobodyKnows) {
  const std::string number = "\xA0\x06\x05", text = "\xA2\x06" + std::string(1, '\0'), group = "\xA3\x06\xA4\x06";
  const std::string four = std::string("\xA5\x06") + "abcd", eight = std::string("\xA1\x06") + "abcdefgh";
  const std::string full = "\xA3\x06" + number + text + "\xA4\x06";
  for (const int64_t count : {1, 3, 100, 70'000}) {
    for (const std::string& each : {number, text, group, four, eight, full}) {
      SCOPED_TRACE(testing::PrintToString(each));
      expect_close<v1::GetLoadRequest>("of the message", times(count, each));
      expect_close<v1::SetPlacementRequest>("of each of its messages", times(count, field(2, each)));
      expect_close<v1::GetLoadRequest>("of a group", "\xA3\x06" + times(count, each) + "\xA4\x06");
    }
  }
  expect_close<v1::SetPlacementRequest>("of another kind than the field", times(1000, "\x10\x05"));
}

TEST(ParsedBytes, Texts) {
  v1::GenerateRequest request;
  request.set_request_id("r1");
  for (const std::size_t length : {0, 1, 15, 16, 1000, 3'000'000}) {
    request.set_text(std::string(length, 'a'));
    expect_close<v1::GenerateRequest>("text", request.SerializeAsString());
    request.add_media()->mutable_picture()->set_data(std::string(length, '\xFF'));
    expect_close<v1::GenerateRequest>("text and pictures", request.SerializeAsString());
  }
}

TEST(ParsedBytes, NestedValues) {
  google::protobuf::Value value;
  google::protobuf::Value* inner = &value;
  for (int depth = 0; depth < 40; ++depth) inner = inner->mutable_list_value()->add_values();
  for (int i = 0; i < 5000; ++i) inner->mutable_list_value()->add_values()->set_number_value(i);
  ::vllm::GenerateRequest request;
  (*request.mutable_kv()->mutable_ec_transfer_params()->mutable_fields())["deep"] = value;
  expect_close<::vllm::GenerateRequest>("values", request.SerializeAsString());
}

TEST(ParsedBytes, StopsOnceThereAreTooMany) {
  const std::string bytes = times(1'000'000, field(2, ""));
  ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), 1000);
  const int64_t most = 100'000;
  const int64_t num_bytes = ParsedBytes(*v1::SetPlacementRequest::descriptor()).count(stream, most);
  EXPECT_GT(num_bytes, most);
  EXPECT_LT(num_bytes, most + 200);
  EXPECT_LT(stream.ByteCount(), 5000);
}

TEST(ParsedBytes, TakesNoMemory) {
  const std::string bytes = times(50'000, field(2, field(1, field(2, "12345") + "\xA0\x06\x05")));
  const ParsedBytes size_of(*v1::SetPlacementRequest::descriptor());
  ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), 1000);
  const int64_t before = test::num_allocations();
  EXPECT_GT(size_of.count(stream, kNoBound), 10'000'000);
  EXPECT_EQ(test::num_allocations(), before);
}

/// What is no message is parsed up to where that is found out, and so is what comes behind a part that says to be longer than
/// what it is in.
TEST(ParsedBytes, CountsOfNoMessageWhatIsParsedOfIt) {
  const std::string parts = times(50'000, field(1, ""));
  const std::string longer = "\x12\x02" + field(1, parts);  // a layer of two bytes, with a rank of 100,000
  const std::string nested = field(2, "\x0A" + field(9, parts).substr(1));
  const std::string mismatched = "\xA3\x06" + times(50'000, "\xA0\x06\x05") + "\xAC\x06" + times(50'000, "\xA0\x06\x05");
  struct Case {
    const char* what;
    std::string bytes;
  };
  for (const auto& [what, bytes] : std::vector<Case>{
           {"cut off", field(2, parts).substr(0, 90'000)},
           {"a part longer than its whole", "\x12\x02" + field(1, times(50'000, "\xA0\x06\x05"))},
           {"a part longer than the message", "\x12\xFF\xFF\x7F" + parts},
           {"longer, of known fields", longer},
           {"bytes behind the end", times(50'000, field(2, "")) + "\x07"},
           {"another group's end", mismatched},
           {"a field of number 0", times(50'000, field(2, "")) + std::string(2, '\0')},
           {"too long a number", times(50'000, field(2, "")) + "\x08" + std::string(11, '\xFF')},
           {"text that is not there", std::string("\x12\xFF\xFF\xFF\x7F\x7A\xFF\xFF\x7F") + "ab"},
           {"text cut off", nested.substr(0, 80'000) + field(7, std::string(3'000'000, 'a')).substr(0, 2'000'000)},
       }) {
    SCOPED_TRACE(what);
    const Measured real = measure<v1::SetPlacementRequest>(bytes);
    EXPECT_FALSE(real.is_message);
    const int64_t estimate = counted(*v1::SetPlacementRequest::descriptor(), bytes);
    EXPECT_GE(estimate, real.at_most / 2);
    EXPECT_GE(estimate, real.said * 4 / 5);
  }
}

/// As deep as protobuf, which gives up at 100.
TEST(ParsedBytes, GoesAsDeepAsProtobuf) {
  const auto groups = [](int depth) {
    return times(depth, "\xA3\x06") + times(100, "\xA0\x06\x05") + times(depth, "\xA4\x06");
  };
  for (const int depth : {99, 100, 101}) {
    const Measured real = measure<v1::GetLoadRequest>(groups(depth));
    EXPECT_EQ(real.is_message, depth <= 100) << depth;
    const int64_t estimate = counted(*v1::GetLoadRequest::descriptor(), groups(depth));
    EXPECT_GE(estimate, real.said) << depth;
    EXPECT_EQ(estimate > 99 * 64 + 100 * 32, depth <= 100) << depth << " " << estimate;
  }
  EXPECT_LT(counted(*v1::GetLoadRequest::descriptor(), groups(1'000'000)), 20'000);
}

}  // namespace
}  // namespace ferry
