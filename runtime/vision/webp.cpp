#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "runtime/vision/decoders.h"

// WebP through libwebp: still pictures, and the first frame of moving ones on a black canvas.

namespace ferry {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

/// Decodes into the rectangle of `picture` whose upper left corner is (x, y).
void decode_at(const PictureFile& file, const uint8_t* data, std::size_t size, Picture& picture, int64_t x, int64_t y) {
  const int64_t stride = picture.width * 3, offset = y * stride + x * 3;
  uint8_t* to = picture.rgb.data() + offset;
  const std::size_t room = picture.rgb.size() - static_cast<std::size_t>(offset);
  if (WebPDecodeRGBInto(data, size, to, room, static_cast<int>(stride)) == nullptr) {
    file.refuse("WebP", "its data is damaged or truncated");
  }
}

Picture decode_first_frame(const PictureFile& file, Picture picture) {
  const WebPData data{file.data(), file.bytes.size()};
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemux(&data));
  WebPIterator frame{};
  if (demuxer == nullptr || WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) {
    file.refuse("WebP", "it is truncated or has no frame");
  }
  const std::unique_ptr<WebPIterator, void (*)(WebPIterator*)> release(&frame, WebPDemuxReleaseIterator);
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &features) != VP8_STATUS_OK) {
    file.refuse("WebP", "its first frame is damaged");
  }
  if (frame.x_offset < 0 || frame.y_offset < 0 || frame.x_offset + int64_t{features.width} > picture.width ||
      frame.y_offset + int64_t{features.height} > picture.height) {
    file.refuse("WebP", "its first frame leaves the picture");
  }
  decode_at(file, frame.fragment.bytes, frame.fragment.size, picture, frame.x_offset, frame.y_offset);
  return picture;
}

}  // namespace

Picture decode_webp(const PictureFile& file) {
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(file.data(), file.bytes.size(), &features) != VP8_STATUS_OK) {
    file.refuse("WebP", "its header is damaged or truncated");
  }
  file.check_size(features.width, features.height);
  Picture picture = make_picture(features.width, features.height);
  if (features.has_animation != 0) return decode_first_frame(file, std::move(picture));
  decode_at(file, file.data(), file.bytes.size(), picture, 0, 0);
  return picture;
}

}  // namespace ferry
