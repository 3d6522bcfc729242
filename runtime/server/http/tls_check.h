#pragma once

#include "runtime/server/access.h"

namespace ferry {

/// Throws Error{kInvalidArgument} that names the option whose file no port could use: no certificate, no key, one with a
/// password, the key of another certificate, no certificates of who signs. gRPC itself would only fail every handshake.
void check_tls(const Access& access);

}  // namespace ferry
