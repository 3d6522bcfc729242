#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ferry {

/// Tokenizers and indices of large models have tens of MB.
inline constexpr int64_t kTextFileBytesMax = int64_t{1} << 28;

/// The contents of a regular file. Throws kNotFound if it cannot be opened, kInvalidArgument if it is a folder, a FIFO or a
/// device (which could have no end) or has more than `max_bytes`; always with the path.
std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes = kTextFileBytesMax);

}  // namespace ferry
