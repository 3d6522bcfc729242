#pragma once

#include <cstdint>
#include <unordered_map>

namespace google::protobuf {
class Descriptor;
namespace io {
class ZeroCopyInputStream;
}
}  // namespace google::protobuf

namespace ferry {

/// What the parts of a message (messages in it, strings, numbers, unknown fields) may take beside its own bytes, in bytes.
inline constexpr int64_t kMessagePartsBytes = int64_t{16} << 20;

/// How much memory messages of one type take once protobuf has parsed them, told from their bytes alone: two bytes of an empty
/// message in a list become 80, and nothing that parses messages has a bound for that.
///
///   static const ParsedBytes size_of(*v1::GenerateRequest::descriptor());
///   if (size_of.count(bytes, most) > most) refuse();
///
/// Counted is what is allocated by protobuf 3.21 with glibc's allocator: messages, strings with their text, lists with the room
/// in which they grow, entries of maps, unknown fields. It is between the half and the double of the truth, above it where a
/// field that may be there once comes again and again, as no writer of protobuf has it.
///
/// Any thread may call any method.
class ParsedBytes {
 public:
  /// `type` is that of generated code.
  explicit ParsedBytes(const google::protobuf::Descriptor& type);

  /// Reads `message` to its end, or until more than `most` bytes are counted. Of what is no message, as much as protobuf would
  /// parse before it says so. Takes no memory but 100 frames of the stack, as deep as protobuf goes.
  int64_t count(google::protobuf::io::ZeroCopyInputStream& message, int64_t most) const;

 private:
  void add(const google::protobuf::Descriptor& type);

  const google::protobuf::Descriptor& type_;
  std::unordered_map<const google::protobuf::Descriptor*, int64_t> object_bytes_;  // of it and of all that may be in it
};

}  // namespace ferry
