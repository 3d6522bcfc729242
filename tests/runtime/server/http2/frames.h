#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/server/http2/header_bound.h"

namespace ferry::test {

// Types and flags of HTTP/2's frames.
constexpr uint8_t kDataFrame = 0x0, kHeadersFrame = 0x1, kSettingsFrame = 0x4, kContinuationFrame = 0x9;
constexpr uint8_t kNoFlags = 0x0, kEndHeaders = 0x4;

/// A frame of stream 1, or of the connection for SETTINGS.
inline std::string frame(uint8_t type, uint8_t flags, const std::string& payload) {
  const std::size_t size = payload.size();
  std::string text;
  for (const std::size_t byte : {size >> 16, size >> 8, size}) text += static_cast<char>(byte & 0xFF);
  text += static_cast<char>(type);
  text += static_cast<char>(flags);
  text += std::string(3, '\0') + static_cast<char>(type == kSettingsFrame ? 0 : 1);
  return text + payload;
}

/// What a client begins with: the preface and no settings.
inline std::string greeting() { return std::string(HeaderBound::kPreface) + frame(kSettingsFrame, kNoFlags, ""); }

}  // namespace ferry::test
