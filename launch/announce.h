#pragma once

#include <string>

#include "runtime/server/access.h"

namespace ferry {

/// Says on stderr where a port is ("http" or "grpc" at HOST:PORT), which names HTTP answers to on all addresses, and whether
/// anybody may use it. Says nothing if `address` is empty. Lines begin with `who`.
void announce(const std::string& who, const std::string& port, const std::string& address, const Access& access);

}  // namespace ferry
