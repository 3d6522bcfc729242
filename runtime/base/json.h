#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "runtime/base/text_file.h"

// The only door for JSON: files of a checkpoint, captures and requests are the work of strangers. All errors are Error with the
// name of what was read.

namespace ferry {

/// What a key that occurs twice in an object means.
enum class DuplicateKeys { kLastWins, kRefuse };

/// Checked before the first value is made. The defaults fit every file of a checkpoint.
struct JsonLimits {
  int depth = 16;  // what copies, prints or destroys values recurses, so depth is stack; tokenizers have 6
  int64_t bytes = kTextFileBytesMax;
  int64_t values = int64_t{1} << 25;  // a value takes 16 bytes or more of memory and may take one of text
  int64_t members = INT64_MAX;        // of one object; where their order is kept, each new one is compared with all before it
  DuplicateKeys duplicates = DuplicateKeys::kLastWins;
};

/// For files that only Ferry or a converter of weights writes.
inline constexpr JsonLimits kNoDuplicates{.duplicates = DuplicateKeys::kRefuse};

/// Parses JSON; `name` is for errors. Throws kInvalidArgument for what is no JSON and for what is beyond `limits`.
nlohmann::json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits);
/// The same, with the members of objects in the order of the text: limits.members must bound them.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name, const JsonLimits& limits);
nlohmann::json read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

/// A value as JSON, cut to about 120 bytes, for a message. Takes no more time for a large one.
std::string shown(const nlohmann::json& value);
std::string shown(const nlohmann::ordered_json& value);

}  // namespace ferry
