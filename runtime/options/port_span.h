#pragma once

#include <span>
#include <string>

namespace ferry {

/// The ports that one option takes, one behind the other: that of its HOST:PORT and `more` at `more_at`. Port 0 stands for
/// ports that the system chooses.
struct PortSpan {
  std::string option;     // "--http"
  std::string address;    // HOST:PORT, as given
  int more = 0;           // ports behind the first
  std::string more_at{};  // their host; empty: the first one's
  int coordinators = 1;   // of the job: why there are more
};

/// Why these options' ports cannot be listened on, as far as that can be told without trying: an address that is no HOST:PORT,
/// too few ports behind the first, or the same port twice. One line that names options and ports; empty if all is well.
std::string check_ports(std::span<const PortSpan> spans);

}  // namespace ferry
