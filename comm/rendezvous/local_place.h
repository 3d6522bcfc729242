#pragma once

#include <optional>
#include <string>

#include "runtime/base/file_descriptor.h"

// Places to meet that no other host reaches: "unix:NAME" is a socket of Linux's abstract namespace, which is no file and goes
// with its owner. Within a host it carries a message in less time than TCP (comm/README.md).

namespace ferry {

/// NAME of "unix:NAME"; nothing for any other address. Throws Error{kInvalidArgument} for a name of no or more than 100
/// characters.
std::optional<std::string> local_place_of(const std::string& address);

/// Non-blocking and close-on-exec. Throws Error{kFailedPrecondition} if the name is taken.
FileDescriptor listen_at_local_place(const std::string& name);

/// Likewise; -1, and errno says why, if nobody listens there.
FileDescriptor connect_to_local_place(const std::string& name);

}  // namespace ferry
