#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// The JSON and text files of a checkpoint, read as what they are: the work of a stranger. All errors are Error with the path.

namespace ferry {

/// The contents of a regular file. Throws kNotFound if it cannot be opened, kInvalidArgument if it is a folder, a FIFO or a device
/// (which could have no end) or larger than any such file is.
std::string read_text_file(const std::filesystem::path& path);

/// What a key that occurs twice in an object means.
enum class DuplicateKeys { kLastWins, kRefuse };

/// Parses JSON; `path` is for errors. Throws kInvalidArgument for what is no JSON, and for nesting deeper than any well-formed
/// file has: what works on values recurses, so depth is stack.
nlohmann::json parse_json(std::string_view text, const std::string& path, DuplicateKeys duplicates);
nlohmann::json read_json_file(const std::filesystem::path& path, DuplicateKeys duplicates = DuplicateKeys::kLastWins);

/// `text` in quotes, cut to about 120 bytes and fit for one line of a message.
std::string in_quotes(std::string_view text);
/// A value as JSON, cut to about 120 bytes, for a message.
std::string shown(const nlohmann::json& value);

}  // namespace ferry
