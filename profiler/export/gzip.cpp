#include "profiler/export/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "runtime/base/check.h"

namespace ferry {

std::string gzip(std::string_view bytes) {
  constexpr int kWindowBits = 15, kGzip = 16, kMemory = 8;
  constexpr std::size_t kPieceBytes = std::size_t{1} << 16;
  z_stream stream{};
  const int started =
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits + kGzip, kMemory, Z_DEFAULT_STRATEGY);
  FERRY_CHECK_EQ(started, Z_OK) << " of deflateInit2()";
  std::string result;
  std::string piece(kPieceBytes, '\0');
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0) {
      const std::size_t taken = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib does not write there
      stream.avail_in = static_cast<uInt>(taken);
      bytes.remove_prefix(taken);
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    FERRY_CHECK(state == Z_OK || state == Z_STREAM_END) << " deflate() gave " << state;
    result.append(piece, 0, piece.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return result;
}

}  // namespace ferry
