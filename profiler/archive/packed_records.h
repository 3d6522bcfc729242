#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Ranks' parts of a capture, packed: of each part the bytes at the same place of 32 (a SpanRecord) lie side by side, for those
// of neighbouring records are alike; all parts one behind another are one zlib stream (RFC 1950). Measured on kept steps of a
// job of four ranks: 26 kB become 7 kB.

namespace ferry {

/// Some 60 microseconds for a step of 26 kB, a hundredth of a second for 2 MB: not for a thread that steps.
std::string pack_parts(const std::vector<std::vector<std::byte>>& parts);

/// The parts, which have `sizes` bytes. What comes out is bounded by these before anything is unpacked, and these by what zlib
/// can make of so few bytes. Throws Error{kInvalidArgument} that names `source` for any other bytes.
std::vector<std::vector<std::byte>> unpack_parts(std::string_view packed, std::span<const std::size_t> sizes,
                                                 const std::string& source);
/// Of all parts together, at most.
inline constexpr std::size_t kMaxUnpackedBytes = std::size_t{1} << 28;

}  // namespace ferry
