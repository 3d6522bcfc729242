#include "profiler/archive/packed_records.h"

#include <zlib.h>

#include "profiler/span_record.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr std::size_t kRecordBytes = sizeof(SpanRecord);
constexpr std::size_t kMostRatio = 1032;  // of any zlib stream (zlib.net/zlib_tech.html)

/// Calls `body(i, at)` with each byte's place in a part and that which it has in its columns.
template <class Body>
void for_each_place(std::size_t num_bytes, Body&& body) {
  std::size_t at = 0;
  for (std::size_t column = 0; column < kRecordBytes; ++column)
    for (std::size_t i = column; i < num_bytes; i += kRecordBytes) body(i, at++);
}

Error bad_packing(const std::string& source, const std::string& what) {
  return {ErrorCode::kInvalidArgument, source + ": " + what + "; allowed: kept steps that Ferry wrote"};
}

}  // namespace

std::string pack_parts(const std::vector<std::vector<std::byte>>& parts) {
  std::size_t num_bytes = 0;
  for (const std::vector<std::byte>& part : parts) num_bytes += part.size();
  std::vector<std::byte> columns(num_bytes);
  std::byte* next = columns.data();
  for (const std::vector<std::byte>& part : parts) {
    for_each_place(part.size(), [&](std::size_t i, std::size_t at) { next[at] = part[i]; });
    next += part.size();
  }
  uLongf size = compressBound(static_cast<uLong>(num_bytes));
  std::string packed(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(columns.data()),
                             static_cast<uLong>(num_bytes), Z_BEST_SPEED);
  FERRY_CHECK_EQ(code, Z_OK);  // the buffer is as large as zlib asks for
  packed.resize(size);
  return packed;
}

std::vector<std::vector<std::byte>> unpack_parts(std::string_view packed, std::span<const std::size_t> sizes,
                                                 const std::string& source) {
  std::size_t num_bytes = 0;
  for (const std::size_t size : sizes) {
    if (size > kMaxUnpackedBytes - num_bytes)
      throw bad_packing(source, "ranks of more than " + std::to_string(kMaxUnpackedBytes) + " bytes");
    num_bytes += size;
  }
  if (num_bytes / kMostRatio > packed.size())
    throw bad_packing(source, std::to_string(num_bytes) + " bytes packed into " + std::to_string(packed.size()));
  std::vector<std::byte> columns(num_bytes);
  uLongf size = static_cast<uLong>(num_bytes);
  uLong num_read = static_cast<uLong>(packed.size());
  const int code =
      uncompress2(reinterpret_cast<Bytef*>(columns.data()), &size, reinterpret_cast<const Bytef*>(packed.data()), &num_read);
  if (code != Z_OK || size != num_bytes)
    throw bad_packing(source, "it cannot be unpacked into its " + std::to_string(num_bytes) + " bytes");
  if (num_read != packed.size())
    throw bad_packing(source, std::to_string(packed.size() - num_read) + " bytes behind its ranks");
  std::vector<std::vector<std::byte>> parts;
  const std::byte* next = columns.data();
  for (const std::size_t part_bytes : sizes) {
    std::vector<std::byte>& part = parts.emplace_back(part_bytes);
    for_each_place(part_bytes, [&](std::size_t i, std::size_t at) { part[i] = next[at]; });
    next += part_bytes;
  }
  return parts;
}

}  // namespace ferry
