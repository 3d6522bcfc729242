#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/vision/decoders.h"

// The first frame of GIF through giflib. What the frame does not cover has the transparent colour, or else colour 0, as in
// Pillow; a frame that leaves the screen makes it larger.

namespace ferry {
namespace {

/// What is still to be read.
struct GifInput {
  const uint8_t* next;
  std::size_t num_left;  // bytes
};

int read_bytes(GifFileType* gif, GifByteType* to, int count) {
  GifInput& input = *static_cast<GifInput*>(gif->UserData);
  const std::size_t taken = std::min(static_cast<std::size_t>(count), input.num_left);
  std::memcpy(to, input.next, taken);
  input.next += taken;
  input.num_left -= taken;
  return static_cast<int>(taken);
}

struct CloseGif {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using GifPtr = std::unique_ptr<GifFileType, CloseGif>;

std::string complaint(int error) {
  const char* text = GifErrorString(error);
  return text == nullptr ? "it is damaged" : text;
}

/// Skips an extension's blocks; of a graphic control extension, remembers the transparent colour.
bool read_extension(GifFileType* gif, int& transparent) {
  int code = 0;
  GifByteType* block = nullptr;  // its length, then its bytes
  if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return false;
  if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] == 4) {
    const bool has_transparent = (block[1] & 1) != 0;
    if (has_transparent) transparent = block[4];
  }
  while (block != nullptr) {
    if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return false;
  }
  return true;
}

/// Reads up to the first frame's description. Returns the transparent colour, or -1.
int find_frame(const PictureFile& file, GifFileType* gif) {
  int transparent = -1;
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &type) == GIF_ERROR) file.refuse("GIF", complaint(gif->Error));
    if (type == TERMINATE_RECORD_TYPE) file.refuse("GIF", "it has no frame");
    if (type == IMAGE_DESC_RECORD_TYPE) break;
    if (type == EXTENSION_RECORD_TYPE && !read_extension(gif, transparent)) file.refuse("GIF", complaint(gif->Error));
  }
  if (DGifGetImageDesc(gif) == GIF_ERROR) file.refuse("GIF", complaint(gif->Error));
  return transparent;
}

/// The colours of all 256 indices: those behind the last are black, without a map each is its own grey.
std::array<uint8_t, 768> colours_of(const GifFileType* gif) {
  std::array<uint8_t, 768> colours{};
  const ColorMapObject* map = gif->Image.ColorMap != nullptr ? gif->Image.ColorMap : gif->SColorMap;
  for (std::size_t i = 0; i < 256; ++i) {
    if (map == nullptr) {
      std::memset(&colours[3 * i], static_cast<int>(i), 3);
    } else if (static_cast<int>(i) < map->ColorCount) {
      const GifColorType& colour = map->Colors[i];
      colours[3 * i] = colour.Red;
      colours[3 * i + 1] = colour.Green;
      colours[3 * i + 2] = colour.Blue;
    }
  }
  return colours;
}

/// The rows of a frame in the order in which a file has them.
std::vector<int> row_order(const GifImageDesc& frame) {
  std::vector<int> order;
  if (!frame.Interlace) {
    for (int y = 0; y < frame.Height; ++y) order.push_back(y);
    return order;
  }
  constexpr std::array kFirst{0, 4, 2, 1}, kStep{8, 8, 4, 2};
  for (std::size_t pass = 0; pass < kFirst.size(); ++pass) {
    for (int y = kFirst[pass]; y < frame.Height; y += kStep[pass]) order.push_back(y);
  }
  return order;
}

}  // namespace

Picture decode_gif(const PictureFile& file) {
  GifInput input{.next = file.data(), .num_left = file.bytes.size()};
  int error = 0;
  const GifPtr gif(DGifOpen(&input, read_bytes, &error));
  if (gif == nullptr) file.refuse("GIF", complaint(error));
  file.check_size(gif->SWidth, gif->SHeight);
  const int transparent = find_frame(file, gif.get());
  const GifImageDesc& frame = gif->Image;
  file.check_size(frame.Width, frame.Height);
  const int64_t width = std::max<int64_t>(gif->SWidth, int64_t{frame.Left} + frame.Width);
  const int64_t height = std::max<int64_t>(gif->SHeight, int64_t{frame.Top} + frame.Height);
  file.check_size(width, height);

  const std::array<uint8_t, 768> colours = colours_of(gif.get());
  Picture picture = make_picture(width, height);
  const uint8_t* around = &colours[3 * static_cast<std::size_t>(std::max(transparent, 0))];
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) std::memcpy(&picture.rgb[i], around, 3);
  std::vector<GifPixelType> indices(static_cast<std::size_t>(frame.Width));
  for (const int y : row_order(frame)) {
    if (file.check_in) file.check_in();
    if (DGifGetLine(gif.get(), indices.data(), frame.Width) == GIF_ERROR) file.refuse("GIF", complaint(gif->Error));
    uint8_t* to = picture.row(frame.Top + y) + 3 * int64_t{frame.Left};
    for (const GifPixelType index : indices) {
      std::memcpy(to, &colours[3 * std::size_t{index}], 3);
      to += 3;
    }
  }
  return picture;
}

}  // namespace ferry
