#include "profiler/report/page_data/packing.h"

#include <zlib.h>

#include "runtime/base/check.h"

namespace ferry {

void VarintWriter::put(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(0x80 | (value & 0x7f)));
  bytes_.push_back(static_cast<char>(value));
}

std::string deflate_bytes(const std::string& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string packed(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                             static_cast<uLong>(bytes.size()), Z_BEST_COMPRESSION);
  FERRY_CHECK_EQ(code, Z_OK);  // the buffer is as large as zlib asks for
  packed.resize(size);
  return packed;
}

std::string encode_base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) text += at + i <= bytes.size() ? kDigits[bits >> (18 - 6 * i) & 0x3f] : '=';
  }
  return text;
}

}  // namespace ferry
