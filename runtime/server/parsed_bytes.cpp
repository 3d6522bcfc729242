#include "runtime/server/parsed_bytes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/base/check.h"

namespace ferry {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::ZeroCopyInputStream;
using ObjectBytes = std::unordered_map<const Descriptor*, int64_t>;

/// Of the wire format, https://protobuf.dev/programming-guides/encoding/.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

constexpr int64_t kInlineText = 15;       // bytes of a std::string that it holds in itself
constexpr int kTrustedText = 50'000'000;  // bytes for which protobuf makes room when a text only says that it has them

/// What glibc takes for an allocation: 8 bytes for itself, in steps of 16, at least 32.
constexpr int64_t allocated(int64_t num_bytes) { return std::max<int64_t>((num_bytes + 8 + 15) / 16 * 16, 32); }

constexpr int64_t kStringBytes = allocated(sizeof(std::string));
constexpr int64_t kGrowth = 2;  // lists double their room
constexpr int64_t kPointerBytes = kGrowth * static_cast<int64_t>(sizeof(void*));
/// An entry's node with its link, key and number, and its share of a table that is a third to three quarters full.
constexpr int64_t kMapEntryBytes = allocated(3 * sizeof(void*)) + 3 * static_cast<int64_t>(sizeof(void*));
constexpr int64_t kUnknownFieldBytes = kGrowth * static_cast<int64_t>(sizeof(UnknownField));
constexpr int64_t kUnknownGroupBytes = allocated(sizeof(UnknownFieldSet));
constexpr int64_t kUnknownFieldsBytes = allocated(sizeof(UnknownFieldSet) + sizeof(void*));  // where a message has some

/// Of a number in a list.
int64_t number_bytes(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return sizeof(bool);
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_DOUBLE: return sizeof(int64_t);
    default: return sizeof(int32_t);
  }
}

/// How numbers of the field's type are written; of anything else kLengthDelimited.
WireType wire_type(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
    case FieldDescriptor::TYPE_DOUBLE: return kFixed64;
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
    case FieldDescriptor::TYPE_FLOAT: return kFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE: return kLengthDelimited;
    case FieldDescriptor::TYPE_GROUP: return kStartGroup;
    default: return kVarint;
  }
}

/// Goes through one message as protobuf's parser does. Where that goes on in spite of an error, so does this one, or there
/// would be messages that it takes for small: a message in another one may be longer than that until both are parsed. (For that
/// CodedInputStream's own limits are of no use.) Methods are false where nothing more is to be counted.
class Walk {
 public:
  Walk(ZeroCopyInputStream& bytes, const ObjectBytes& object_bytes, int64_t most)
      : bytes_(bytes), input_(&bytes), object_bytes_(object_bytes), most_(most) {}

  /// A message's fields up to `end`, a position of the stream; those of an unknown group (`type` is null) up to its end tag.
  bool message(const Descriptor* type, int64_t end, int depth) {
    if (depth < 0) return false;
    bool has_unknown = false;
    while (input_.CurrentPosition() < end) {
      const uint32_t tag = input_.ReadTag();
      if (tag >> 3 == 0) return false;  // also at the stream's end
      const auto wire = static_cast<WireType>(tag & 7);
      if (wire == kEndGroup) return type == nullptr;
      const FieldDescriptor* field = type == nullptr ? nullptr : type->FindFieldByNumber(static_cast<int>(tag >> 3));
      const bool is_packed = field != nullptr && field->is_packable() && wire == kLengthDelimited;
      bool goes_on = false;
      if (field != nullptr && (is_packed || wire == wire_type(*field))) {
        goes_on = is_packed ? packed(*field) : known(*field, depth);
      } else {
        if (type != nullptr && !has_unknown) num_bytes_ += kUnknownFieldsBytes;
        has_unknown = true;
        goes_on = unknown(wire, end, depth);
      }
      if (!goes_on || num_bytes_ > most_) return false;
    }
    return type != nullptr && input_.CurrentPosition() == end;
  }

  int64_t num_bytes() const { return num_bytes_; }

 private:
  bool known(const FieldDescriptor& field, int depth) {
    if (wire_type(field) != kLengthDelimited) {
      if (field.is_repeated()) num_bytes_ += kGrowth * number_bytes(field);
      return number(wire_type(field));
    }
    if (field.is_map()) {
      num_bytes_ += kMapEntryBytes;
    } else if (field.is_repeated()) {
      num_bytes_ += kPointerBytes;
    }
    if (field.message_type() == nullptr) return text();
    int length = 0;
    if (!read_length(length)) return false;
    num_bytes_ += object_bytes_.at(field.message_type());
    return message(field.message_type(), int64_t{input_.CurrentPosition()} + length, depth - 1);
  }

  bool unknown(WireType wire, int64_t end, int depth) {
    num_bytes_ += kUnknownFieldBytes;
    if (wire == kLengthDelimited) return text();
    if (wire != kStartGroup) return number(wire);
    num_bytes_ += kUnknownGroupBytes;
    return message(nullptr, end, depth - 1);
  }

  bool number(WireType wire) {
    uint64_t value = 0;
    switch (wire) {
      case kVarint: return input_.ReadVarint64(&value);
      case kFixed64: return input_.Skip(sizeof(uint64_t));
      case kFixed32: return input_.Skip(sizeof(uint32_t));
      default: return false;
    }
  }

  bool text() {
    int length = 0;
    if (!read_length(length)) return false;
    const int64_t there = skip(length);
    const int64_t room = std::max<int64_t>(there, std::min(length, kTrustedText));
    num_bytes_ += kStringBytes + (room > kInlineText ? allocated(room + 1) : 0);
    return there == length;
  }

  bool packed(const FieldDescriptor& field) {
    int length = 0;
    if (!read_length(length)) return false;
    const WireType wire = wire_type(field);
    if (wire == kVarint) return packed_varints(length, kGrowth * number_bytes(field));
    const int64_t there = skip(length);
    num_bytes_ += kGrowth * there;  // numbers of a fixed size are as large as on the wire
    return there == length;
  }

  /// Numbers end where a byte's highest bit is 0.
  bool packed_varints(int length, int64_t each) {
    const void* data = nullptr;
    for (int num_there = 0; length > 0; length -= num_there) {
      if (!input_.GetDirectBufferPointer(&data, &num_there)) return false;
      num_there = std::min(num_there, length);
      const auto* bytes = static_cast<const uint8_t*>(data);
      num_bytes_ += each * std::count_if(bytes, bytes + num_there, [](uint8_t byte) { return byte < 0x80; });
      if (num_bytes_ > most_ || !input_.Skip(num_there)) return false;
    }
    return true;
  }

  /// A length that the end of the stream cuts off counts as far as it goes: protobuf reads zeros there, and makes room.
  bool read_length(int& length) {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      uint8_t byte = 0;
      if (!input_.ReadRaw(&byte, 1)) byte = 0;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte >= 0x80) continue;
      length = static_cast<int>(std::min<uint64_t>(value, std::numeric_limits<int>::max()));
      return true;
    }
    return false;
  }

  /// How many of `length` bytes are there.
  int64_t skip(int length) {
    const int64_t begin = input_.CurrentPosition();
    return input_.Skip(length) ? length : bytes_.ByteCount() - begin;
  }

  ZeroCopyInputStream& bytes_;
  CodedInputStream input_;
  const ObjectBytes& object_bytes_;
  const int64_t most_;
  int64_t num_bytes_ = 0;
};

}  // namespace

ParsedBytes::ParsedBytes(const Descriptor& type) : type_(type) { add(type); }

int64_t ParsedBytes::count(ZeroCopyInputStream& message, int64_t most) const {
  Walk walk(message, object_bytes_, most);
  walk.message(&type_, std::numeric_limits<int>::max(), CodedInputStream::GetDefaultRecursionLimit());
  return object_bytes_.at(&type_) + walk.num_bytes();
}

void ParsedBytes::add(const Descriptor& type) {
  if (object_bytes_.contains(&type)) return;
  int64_t& object_bytes = object_bytes_[&type];
  if (!type.options().map_entry()) {  // there is no such object
    const google::protobuf::Message* empty = google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
    FERRY_CHECK(empty != nullptr) << type.full_name() << " is not of generated code";
    object_bytes = allocated(static_cast<int64_t>(empty->SpaceUsedLong()));
  }
  for (int f = 0; f < type.field_count(); ++f) {
    if (type.field(f)->message_type() != nullptr) add(*type.field(f)->message_type());
  }
}

}  // namespace ferry
