#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/runtime/vision/drawn_picture.h"

namespace ferry::test {

namespace detail {

inline std::string number(uint32_t value, int num_bytes) {
  std::string text;
  for (int i = num_bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string summed = type + data;
  return number(static_cast<uint32_t>(data.size()), 4) + summed + number(crc(bytes_of(summed)), 4);
}

/// A zlib stream of blocks that are stored as they are.
inline std::string stored(std::string_view data) {
  constexpr std::size_t kBlock = 65535;
  std::string text = "\x78\x01";
  uint32_t low = 1, high = 0;  // Adler-32
  for (const char c : data) {
    low = (low + static_cast<uint8_t>(c)) % 65521;
    high = (high + low) % 65521;
  }
  for (std::size_t at = 0; at < data.size(); at += kBlock) {
    const auto size = static_cast<uint32_t>(std::min(kBlock, data.size() - at));
    text += at + size == data.size() ? '\x01' : '\0';
    for (const uint32_t word : {size, ~size}) text += {static_cast<char>(word & 0xff), static_cast<char>(word >> 8 & 0xff)};
    text += data.substr(at, size);
  }
  return text + number(high << 16 | low, 4);
}

}  // namespace detail

/// `picture` as a PNG file, not compressed.
inline std::string png_of(const Picture& picture) {
  using detail::number, detail::png_chunk;
  std::string rows;
  for (int64_t y = 0; y < picture.height; ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(picture.row(y)), static_cast<std::size_t>(3 * picture.width));
  }
  const std::string sides = number(static_cast<uint32_t>(picture.width), 4) + number(static_cast<uint32_t>(picture.height), 4);
  const std::string header = sides + std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", detail::stored(rows)) + png_chunk("IEND", "");
}

}  // namespace ferry::test
