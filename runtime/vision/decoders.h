#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>

#include "runtime/vision/picture.h"

// One decoder a file type, for decode_picture() alone. Each checks the declared size before it allocates, throws what
// decode_picture() throws and leaves the orientation of Exif to it.

namespace ferry {

/// A file and how to complain about it.
struct PictureFile {
  std::span<const std::byte> bytes;
  const PictureLimits& limits;
  std::string name;                       // begins the messages
  const std::function<void()>& check_in;  // may be empty

  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(bytes.data()); }
  /// Throws Error{kInvalidArgument} unless both are positive and their product is within the limits.
  void check_size(int64_t width, int64_t height) const;
  /// Throws Error{kInvalidArgument}: `type` is "PNG", `why` the library's complaint, or ours.
  [[noreturn]] void refuse(const char* type, const std::string& why) const;
  /// Asks check_in whether to go on. What it throws must not unwind a C library's functions: it is left in `failure`, and the
  /// answer is no.
  [[nodiscard]] bool goes_on(std::exception_ptr& failure) const noexcept;
};

Picture decode_png(const PictureFile& file);
Picture decode_jpeg(const PictureFile& file);
Picture decode_webp(const PictureFile& file);
Picture decode_gif(const PictureFile& file);

}  // namespace ferry
