#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

// Pictures from files that strangers wrote. A file is in memory as a whole; its type is found by its content.
//
//   const Picture picture = decode_picture(bytes, PictureLimits{});

namespace ferry {

/// 8 bits a channel, red, green, blue.
struct Picture {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  const uint8_t* row(int64_t y) const { return rgb.data() + y * width * 3; }
  uint8_t* row(int64_t y) { return rgb.data() + y * width * 3; }
};

/// A picture of `width` x `height`, black.
Picture make_picture(int64_t width, int64_t height);

/// What is checked before anything of a picture's size is allocated.
struct PictureLimits {
  int64_t max_bytes = int64_t{32} << 20;   // of a file
  int64_t max_pixels = int64_t{64} << 20;  // width x height as the file declares them
};

/// Decodes PNG, JPEG, WebP or the first frame of GIF to what Pillow gives for ImageOps.exif_transpose(image).convert("RGB"):
/// alpha is dropped, palettes are looked up, grey is spread, the orientation of Exif is applied, profiles and gammas are
/// ignored. 16 bits a channel lose their lower 8, but plain grey ones are cut off at 255. Takes up to about 8 bytes a pixel
/// beside the result. `name` begins the messages: "picture 2".
///
/// `check_in` (if there is one) is called between rows and scans, but not within a WebP file; what it throws ends the decoding.
///
/// Throws Error{kInvalidArgument} that names what is wrong, its value and what is allowed. Any thread may call.
Picture decode_picture(std::span<const std::byte> file, const PictureLimits& limits, const std::string& name = "picture",
                       const std::function<void()>& check_in = {});

}  // namespace ferry
