#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "runtime/vision/picture.h"
#include "tests/support/source_folder.h"

// What tests of pictures share: files, drawn pictures and checksums as tests/golden/gen_vision_goldens.py makes them.

namespace ferry::test {

inline std::filesystem::path golden_folder(const std::string& name) { return source_folder() / "tests" / "golden" / name; }

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

inline Picture read_picture(const std::filesystem::path& path) {
  return decode_picture(bytes_of(read_file(path)), PictureLimits{}, path.filename().string());
}

inline nlohmann::json read_golden(const std::filesystem::path& path) { return nlohmann::json::parse(read_file(path)); }

/// The picture of the script, moved by `shift` columns.
inline Picture drawn_picture(int64_t height, int64_t width, int64_t shift = 0) {
  Picture picture = make_picture(width, height);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t i = 0; i < 3 * width; ++i) {
      const int64_t x = i / 3 + shift, c = i % 3;
      picture.row(y)[i] = static_cast<uint8_t>((((7 * x + 13 * y + 29 * c + (x * y * (c + 3) >> 2)) * 37) >> 3) & 255);
    }
  }
  return picture;
}

/// CRC-32 as zlib computes it.
inline uint32_t crc(std::span<const std::byte> bytes) {
  uint32_t table[256];
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
    table[i] = value;
  }
  uint32_t sum = 0xffffffffU;
  for (const std::byte b : bytes) sum = (sum >> 8) ^ table[(sum ^ static_cast<uint32_t>(b)) & 0xffU];
  return ~sum;
}

}  // namespace ferry::test
