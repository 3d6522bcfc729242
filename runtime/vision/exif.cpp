#include "runtime/vision/exif.h"

#include <cstring>
#include <string_view>

namespace ferry {
namespace {

using Bytes = std::span<const std::byte>;

uint32_t byte_at(Bytes bytes, std::size_t i) { return std::to_integer<uint32_t>(bytes[i]); }
uint32_t big_16(Bytes bytes, std::size_t i) { return byte_at(bytes, i) << 8 | byte_at(bytes, i + 1); }
uint32_t big_32(Bytes bytes, std::size_t i) { return big_16(bytes, i) << 16 | big_16(bytes, i + 2); }
uint32_t little_16(Bytes bytes, std::size_t i) { return byte_at(bytes, i) | byte_at(bytes, i + 1) << 8; }
uint32_t little_32(Bytes bytes, std::size_t i) { return little_16(bytes, i) | little_16(bytes, i + 2) << 16; }

bool has_at(Bytes bytes, std::size_t i, std::string_view text) {
  return i <= bytes.size() && bytes.size() - i >= text.size() && std::memcmp(bytes.data() + i, text.data(), text.size()) == 0;
}

constexpr std::string_view kExifMark("Exif\0\0", 6);

/// JPEG and WebP may have the mark before the block.
Bytes without_mark(Bytes block) { return has_at(block, 0, kExifMark) ? block.subspan(kExifMark.size()) : block; }

/// Chunks of length, type, data and check sum.
Bytes find_in_png(Bytes file) {
  constexpr std::size_t kAround = 12;  // bytes of a chunk beside its data
  std::size_t at = 8;
  while (file.size() >= kAround && at <= file.size() - kAround) {
    const std::size_t length = big_32(file, at);
    if (length > file.size() - kAround - at) return {};
    if (has_at(file, at + 4, "eXIf")) return without_mark(file.subspan(at + 8, length));
    at += kAround + length;
  }
  return {};
}

/// Segments of 0xFF, marker, length and data, up to the first scan.
Bytes find_in_jpeg(Bytes file) {
  constexpr uint32_t kApp1 = 0xe1, kStartOfScan = 0xda;
  std::size_t at = 2;
  while (file.size() >= 4 && at <= file.size() - 4) {
    if (byte_at(file, at) != 0xff) return {};
    const uint32_t marker = byte_at(file, at + 1);
    if (marker == 0xff) {
      ++at;  // a filling byte
      continue;
    }
    const std::size_t length = big_16(file, at + 2);  // with its own two bytes
    if (marker == kStartOfScan || length < 2 || length > file.size() - at - 2) return {};
    const Bytes data = file.subspan(at + 4, length - 2);
    if (marker == kApp1 && has_at(data, 0, kExifMark)) return without_mark(data);
    at += 2 + length;
  }
  return {};
}

/// Chunks of type, length and data, filled up to even lengths.
Bytes find_in_webp(Bytes file) {
  std::size_t at = 12;
  while (file.size() >= 8 && at <= file.size() - 8) {
    const std::size_t length = little_32(file, at + 4);
    if (length > file.size() - at - 8) return {};
    if (has_at(file, at, "EXIF")) return without_mark(file.subspan(at + 8, length));
    at += 8 + length + length % 2;
  }
  return {};
}

/// Where pixel (x, y) of the upright picture comes from.
struct Source {
  int64_t x, y;
};
Source source_of(int64_t x, int64_t y, const Picture& from, int orientation) {
  const int64_t right = from.width - 1, bottom = from.height - 1;
  switch (orientation) {
    case 2: return {right - x, y};
    case 3: return {right - x, bottom - y};
    case 4: return {x, bottom - y};
    case 5: return {y, x};
    case 6: return {y, bottom - x};
    case 7: return {right - y, bottom - x};
    default: return {right - y, x};
  }
}

}  // namespace

std::span<const std::byte> find_exif(std::span<const std::byte> file) {
  if (has_at(file, 0, "\x89PNG")) return find_in_png(file);
  if (has_at(file, 0, "\xff\xd8")) return find_in_jpeg(file);
  if (has_at(file, 0, "RIFF")) return find_in_webp(file);
  return {};
}

int read_orientation(std::span<const std::byte> exif) {
  constexpr uint32_t kOrientation = 0x0112, kShort = 3;
  constexpr std::size_t kHeaderBytes = 8, kEntryBytes = 12;
  if (exif.size() < kHeaderBytes) return 1;
  const bool is_little = has_at(exif, 0, "II");
  if (!is_little && !has_at(exif, 0, "MM")) return 1;
  const auto read_16 = is_little ? little_16 : big_16;
  const auto read_32 = is_little ? little_32 : big_32;
  const std::size_t directory = read_32(exif, 4);
  if (directory > exif.size() - 2) return 1;
  const std::size_t num_entries = read_16(exif, directory);
  for (std::size_t i = 0; i < num_entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > exif.size()) return 1;
    if (read_16(exif, entry) != kOrientation) continue;
    const uint32_t value = read_16(exif, entry + 8);
    return read_16(exif, entry + 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Picture make_upright(Picture picture, int orientation) {
  if (orientation <= 1 || orientation > 8) return picture;
  const bool is_turned = orientation >= 5;
  Picture upright = make_picture(is_turned ? picture.height : picture.width, is_turned ? picture.width : picture.height);
  for (int64_t y = 0; y < upright.height; ++y) {
    uint8_t* to = upright.row(y);
    for (int64_t x = 0; x < upright.width; ++x) {
      const Source from = source_of(x, y, picture, orientation);
      std::memcpy(to + 3 * x, picture.row(from.y) + 3 * from.x, 3);
    }
  }
  return upright;
}

}  // namespace ferry
