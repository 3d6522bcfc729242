#include <png.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "runtime/vision/decoders.h"

// PNG through libpng. An error of the library leaves by longjmp: the functions that call setjmp hold nothing that would have to
// be destroyed.

namespace ferry {
namespace {

/// What the library's callbacks see.
struct PngInput {
  const PictureFile& file;
  const uint8_t* next;
  std::size_t num_left;  // bytes
  char message[128];
  std::exception_ptr failure;  // what file.check_in threw
};

void read_bytes(png_structp png, png_bytep to, std::size_t count) {
  PngInput& input = *static_cast<PngInput*>(png_get_io_ptr(png));
  if (count > input.num_left) png_error(png, "the file is truncated");
  std::memcpy(to, input.next, count);
  input.next += count;
  input.num_left -= count;
}

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  PngInput& input = *static_cast<PngInput*>(png_get_error_ptr(png));
  std::strncpy(input.message, message, sizeof(input.message) - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_row(png_structp png, png_uint_32, int) {
  PngInput& input = *static_cast<PngInput*>(png_get_io_ptr(png));
  if (!input.file.goes_on(input.failure)) png_error(png, "it was given up");
}

/// Owns the library's structures.
struct PngReader {
  explicit PngReader(PngInput& input) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, on_error, on_warning);
    if (png == nullptr) return;
    info = png_create_info_struct(png);
    png_set_read_fn(png, &input, read_bytes);
    png_set_read_status_fn(png, on_row);
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  png_structp png = nullptr;
  png_infop info = nullptr;
};

/// The chunks that say nothing about pixels are not unpacked. Of 16 bits the higher 8 are kept, but all of plain grey.
bool read_header(PngReader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  static const png_byte kSkipped[] =
      "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0zTXt";
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER, kSkipped, sizeof(kSkipped) / 5);
  png_set_user_limits(reader.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_read_info(reader.png, reader.info);
  const int type = png_get_color_type(reader.png, reader.info), bits = png_get_bit_depth(reader.png, reader.info);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(reader.png);
  if (type == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(reader.png);
  if (bits == 16 && type != PNG_COLOR_TYPE_GRAY) png_set_strip_16(reader.png);
  png_set_strip_alpha(reader.png);
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return true;
}

bool read_rows(PngReader& reader, uint8_t** rows) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_image(reader.png, rows);
  return true;
}

/// Spreads the grey values at the beginning of a row, 1 or 2 bytes each, over three channels; values above 255 become 255, as
/// in Pillow's conversion of its mode I;16.
void spread_grey(uint8_t* row, int64_t width, int64_t value_bytes) {
  for (int64_t x = width - 1; x >= 0; --x) {
    const uint8_t* from = row + x * value_bytes;
    const uint8_t value = value_bytes == 2 ? (from[0] != 0 ? 255 : from[1]) : from[0];
    std::memset(row + 3 * x, value, 3);
  }
}

}  // namespace

Picture decode_png(const PictureFile& file) {
  constexpr std::size_t kWidthAt = 16, kSizeEnd = 24;
  if (file.bytes.size() < kSizeEnd || std::memcmp(file.data() + 12, "IHDR", 4) != 0) file.refuse("PNG", "it has no header");
  file.check_size(png_get_uint_32(file.data() + kWidthAt), png_get_uint_32(file.data() + kWidthAt + 4));
  PngInput input{.file = file, .next = file.data(), .num_left = file.bytes.size(), .message = {}, .failure = nullptr};
  PngReader reader(input);
  if (reader.png == nullptr || reader.info == nullptr) file.refuse("PNG", "no memory is left");
  if (!read_header(reader)) file.refuse("PNG", input.message);

  Picture picture = make_picture(png_get_image_width(reader.png, reader.info), png_get_image_height(reader.png, reader.info));
  const auto row_bytes = static_cast<int64_t>(png_get_rowbytes(reader.png, reader.info));
  if (row_bytes > 3 * picture.width) file.refuse("PNG", "its rows have " + std::to_string(row_bytes) + " bytes");
  std::vector<uint8_t*> rows(static_cast<std::size_t>(picture.height));
  for (int64_t y = 0; y < picture.height; ++y) rows[static_cast<std::size_t>(y)] = picture.row(y);
  const bool is_whole = read_rows(reader, rows.data());
  if (input.failure) std::rethrow_exception(input.failure);
  if (!is_whole) file.refuse("PNG", input.message);
  const int64_t value_bytes = row_bytes / picture.width;
  if (value_bytes < 3) {
    for (uint8_t* row : rows) spread_grey(row, picture.width, value_bytes);
  }
  return picture;
}

}  // namespace ferry
