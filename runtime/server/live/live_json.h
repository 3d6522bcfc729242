#pragma once

#include <string>
#include <string_view>

#include "runtime/server/live/live_status.h"

namespace ferry {

/// One object whose members have the names of the fields, on one line.
std::string to_json_text(const LiveStatus& status);

/// The other way: what another version of Ferry does not say stays as it is by default, what it says beside is left out. Throws
/// Error{kInvalidArgument} that names `source` for what is no such object: it may come from anybody.
LiveStatus parse_live_status(std::string_view text, const std::string& source);

/// The "message" of an error's answer (http_error()), empty if `text` is none.
std::string error_message_of(std::string_view text);

}  // namespace ferry
