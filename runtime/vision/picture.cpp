#include "runtime/vision/picture.h"

#include <cstring>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/vision/decoders.h"
#include "runtime/vision/exif.h"

namespace ferry {
namespace {

bool begins(std::span<const std::byte> bytes, std::size_t at, std::string_view text) {
  return bytes.size() >= at + text.size() && std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
}

Picture decode(const PictureFile& file) {
  if (begins(file.bytes, 0, "\x89PNG\r\n\x1a\n")) return decode_png(file);
  if (begins(file.bytes, 0, "\xff\xd8\xff")) return decode_jpeg(file);
  if (begins(file.bytes, 0, "GIF87a") || begins(file.bytes, 0, "GIF89a")) return decode_gif(file);
  if (begins(file.bytes, 0, "RIFF") && begins(file.bytes, 8, "WEBP")) return decode_webp(file);
  throw_invalid(file.name + ": " + std::to_string(file.bytes.size()) +
                " bytes that are of no known type; allowed: PNG, JPEG, WebP, GIF");
}

}  // namespace

Picture make_picture(int64_t width, int64_t height) {
  return {.width = width, .height = height, .rgb = std::vector<uint8_t>(static_cast<std::size_t>(width * height * 3))};
}

void PictureFile::check_size(int64_t width, int64_t height) const {
  constexpr int64_t kMaxSide = int64_t{1} << 31;  // far above what any of the types can declare and be read
  if (width > 0 && height > 0 && width < kMaxSide && height < kMaxSide && width * height <= limits.max_pixels) return;
  throw_invalid(name + ": it declares " + std::to_string(width) + " x " + std::to_string(height) + " pixels; allowed: 1 to " +
                std::to_string(limits.max_pixels) + " together");
}

void PictureFile::refuse(const char* type, const std::string& why) const {
  throw_invalid(name + ": " + type + " of " + std::to_string(bytes.size()) + " bytes cannot be read: " + why +
                "; allowed: a whole, undamaged file");
}

bool PictureFile::goes_on(std::exception_ptr& failure) const noexcept {
  try {
    if (check_in) check_in();
    return true;
  } catch (...) {
    failure = std::current_exception();
    return false;
  }
}

Picture decode_picture(std::span<const std::byte> file, const PictureLimits& limits, const std::string& name,
                       const std::function<void()>& check_in) {
  if (file.empty()) throw_invalid(name + ": it is empty; allowed: a PNG, JPEG, WebP or GIF file");
  if (std::ssize(file) > limits.max_bytes) {
    const std::string allowed = std::to_string(limits.max_bytes);
    throw_invalid(name + ": it has more than " + allowed + " bytes; allowed: at most " + allowed + " (--picture-bytes)");
  }
  Picture picture = decode({.bytes = file, .limits = limits, .name = name, .check_in = check_in});
  return make_upright(std::move(picture), read_orientation(find_exif(file)));
}

}  // namespace ferry
