#include "launch/announce.h"

#include <cstdio>
#include <optional>

namespace ferry {

void announce(const std::string& who, const std::string& port, const std::string& address, const Access& access) {
  if (address.empty()) return;
  if (const auto warning = open_port_warning(port, address, access))
    std::fprintf(stderr, "ferry: warning: %s\n", warning->c_str());
  std::fprintf(stderr, "ferry: %sserving %s on %s\n", who.c_str(), port.c_str(), address.c_str());
  if (port != "http") return;
  if (const auto names = allowed_names(address, access)) std::fprintf(stderr, "ferry: %s%s\n", who.c_str(), names->c_str());
}

}  // namespace ferry
