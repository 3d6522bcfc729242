#include <algorithm>
#include <csetjmp>
#include <cstdio>
// jpeglib.h needs the two above.
#include <jerror.h>
#include <jpeglib.h>

#include <exception>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/vision/decoders.h"

// JPEG through libjpeg. An error of the library leaves by longjmp: the functions that call setjmp hold nothing that would have
// to be destroyed.

namespace ferry {
namespace {

// Each scan of a progressive file is a pass over all of the picture's coefficients, and a scan takes few bytes: their number
// times the pixels bounds the time. Encoders write about ten. Sixteen of 64 Mi pixels take 1.7 s at most where coefficients
// have Huffman codes, each at least a bit of the file. Arithmetic ones cost next to none: 642 bytes took 4.3 s, so there the
// large ones get fewer.
constexpr int64_t kMaxScans = 100, kFewestScans = 16;      // of small pictures, and of any
constexpr int64_t kMaxScannedPixels = int64_t{256} << 20;  // scans times pixels: a second or so
constexpr int64_t kSpareCoefficientBytes = 1 << 20;        // for sides that are not whole blocks

int64_t max_scans(const jpeg_decompress_struct& info) {
  const int64_t num_pixels = static_cast<int64_t>(info.image_width) * static_cast<int64_t>(info.image_height);
  const int64_t fewest = info.arith_code != 0 ? 1 : kFewestScans;
  return std::clamp(kMaxScannedPixels / std::max<int64_t>(num_pixels, 1), fewest, kMaxScans);
}

/// Of a file in several scans the library keeps all coefficients, 2 bytes each, until the last one. They may take as much as
/// the pixels of the largest picture: that is enough for half of the largest one without, all of it with chroma subsampling.
void check_coefficients(const PictureFile& file, jpeg_decompress_struct& info) {
  if (jpeg_has_multiple_scans(&info) == 0) return;
  const int64_t allowed = 3 * file.limits.max_pixels + kSpareCoefficientBytes;
  int64_t num_bytes = 0;
  for (int c = 0; c < info.num_components; ++c) {
    const jpeg_component_info& component = info.comp_info[c];
    num_bytes += int64_t{component.width_in_blocks} * component.height_in_blocks * DCTSIZE2 * 2;
  }
  if (num_bytes <= allowed) return;
  throw_invalid(file.name + ": JPEG in several scans whose coefficients have " + std::to_string(num_bytes) +
                " bytes; allowed: at most " + std::to_string(allowed));
}

/// The library's structures, and what its callbacks leave.
struct JpegReader {
  explicit JpegReader(const PictureFile& from) : file(from) {}
  ~JpegReader() {
    if (is_created) jpeg_destroy_decompress(&info);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  const PictureFile& file;
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  jmp_buf on_error;
  char message[JMSG_LENGTH_MAX] = {};
  std::exception_ptr failure;  // what file.check_in threw
  bool is_created = false;
};

[[noreturn]] void on_error(j_common_ptr common) {
  JpegReader& reader = *static_cast<JpegReader*>(common->client_data);
  common->err->format_message(common, reader.message);
  longjmp(reader.on_error, 1);
}

/// Damaged data is a warning for the library and passes, as in Pillow; an early end of the file does not.
void on_message(j_common_ptr common, int level) {
  if (level < 0 && common->err->msg_code == JWRN_JPEG_EOF) on_error(common);
}

/// Between rows of blocks and between rows of pixels.
void on_progress(j_common_ptr common) {
  JpegReader& reader = *static_cast<JpegReader*>(common->client_data);
  if (!reader.file.goes_on(reader.failure)) longjmp(reader.on_error, 1);
  const int64_t allowed = max_scans(reader.info);
  if (reader.info.input_scan_number <= allowed) return;
  std::snprintf(reader.message, sizeof(reader.message), "it has more than %d scans", static_cast<int>(allowed));
  longjmp(reader.on_error, 1);
}

bool read_header(JpegReader& reader, const uint8_t* data, std::size_t size) {
  if (setjmp(reader.on_error) != 0) return false;
  reader.info.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = on_error;
  reader.errors.emit_message = on_message;
  reader.info.client_data = &reader;
  jpeg_create_decompress(&reader.info);
  reader.is_created = true;
  reader.progress.progress_monitor = on_progress;
  reader.info.progress = &reader.progress;
  jpeg_mem_src(&reader.info, data, size);
  jpeg_read_header(&reader.info, TRUE);
  return true;
}

bool start(JpegReader& reader) {
  if (setjmp(reader.on_error) != 0) return false;
  reader.info.out_color_space = reader.info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&reader.info);
  return true;
}

bool read_row(JpegReader& reader, uint8_t* row) {
  if (setjmp(reader.on_error) != 0) return false;
  JSAMPROW rows[] = {row};
  jpeg_read_scanlines(&reader.info, rows, 1);
  return true;
}

[[noreturn]] void give_up(const JpegReader& reader) {
  if (reader.failure) std::rethrow_exception(reader.failure);
  reader.file.refuse("JPEG", reader.message);
}

/// a * b / 255, rounded.
uint32_t multiply_255(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

/// Inks as Adobe stores them, inverted: each channel of light is what key and ink leave of white.
void to_rgb(const uint8_t* cmyk, uint8_t* rgb, int64_t width) {
  for (int64_t x = 0; x < width; ++x) {
    const uint32_t light = cmyk[4 * x + 3];
    for (int64_t c = 0; c < 3; ++c) rgb[3 * x + c] = static_cast<uint8_t>(light - multiply_255(255U - cmyk[4 * x + c], light));
  }
}

}  // namespace

Picture decode_jpeg(const PictureFile& file) {
  JpegReader reader(file);
  if (!read_header(reader, file.data(), file.bytes.size())) give_up(reader);
  const int channels = reader.info.num_components;
  if (channels != 1 && channels != 3 && channels != 4) {
    file.refuse("JPEG", "it has " + std::to_string(channels) + " channels and not 1, 3 or 4");
  }
  file.check_size(reader.info.image_width, reader.info.image_height);
  check_coefficients(file, reader.info);
  if (!start(reader)) give_up(reader);
  Picture picture = make_picture(reader.info.output_width, reader.info.output_height);
  std::vector<uint8_t> inks(channels == 4 ? static_cast<std::size_t>(4 * picture.width) : 0);
  for (int64_t y = 0; y < picture.height; ++y) {
    if (!read_row(reader, channels == 4 ? inks.data() : picture.row(y))) give_up(reader);
    if (channels == 4) to_rgb(inks.data(), picture.row(y), picture.width);
  }
  return picture;
}

}  // namespace ferry
