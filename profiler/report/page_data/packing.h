#pragma once

#include <cstdint>
#include <string>

// How columns of whole numbers are packed for the page: each number as a little-endian base 128 varint (seven bits a byte, the
// low ones first, the high bit set on all but the last), the bytes through zlib, the result in base64.

namespace ferry {

/// Appends varints to a string of bytes.
class VarintWriter {
 public:
  void put(uint64_t value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// `bytes` as a zlib stream (RFC 1950), as a browser's DecompressionStream("deflate") reads it.
std::string deflate_bytes(const std::string& bytes);
/// RFC 4648 with padding.
std::string encode_base64(const std::string& bytes);

}  // namespace ferry
