#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/server/picture_address.h"
#include "runtime/server/public_address.h"

// Pictures from other hosts. Whoever sends a request chooses the URL, and this machine's place in the network is not theirs to
// use: only hosts that the operator named are asked, only at public addresses, judged as the very address that a socket is
// about to be connected to (so no name can change its address in between), without redirects, proxies, cookies and credentials.

namespace ferry {

struct RemotePictures {
  std::vector<std::string> hosts;                                // as parse_remote_hosts makes them; empty: nothing is fetched
  int64_t max_bytes = int64_t{32} << 20;                         // of one picture
  std::chrono::milliseconds timeout = std::chrono::seconds(10);  // from the look-up of the host to the last byte
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(5);  // of which, until a connection stands
  std::function<void()> check_in = {};                                  // about once a second, and as bytes come; may be empty
};

/// What a fetch trusts beside the list of hosts. Only tests trust anything else.
struct FetchTrust {
  bool (*may_connect)(const sockaddr* address) = is_public_address;
  std::filesystem::path authorities;  // PEM; empty: the system's
};

/// The bytes that `url`'s host sends with status 200, and no more of them than allowed. `name` begins the messages:
/// "picture 2". Blocks until then, at most for the timeout; what allowed.check_in throws ends it, too. Any thread may call.
///
/// Throws Error: kInvalidArgument if the URL is not allowed, leads to no public address, is answered with another status or
/// with too many bytes; kDeadlineExceeded; kUnavailable if the host cannot be reached, shows no valid certificate, breaks off
/// or is overloaded (429, 5xx).
std::vector<std::byte> fetch_picture(const std::string& url, const RemotePictures& allowed, const std::string& name = "picture",
                                     const FetchTrust& trust = {});

/// fetch_picture with a URL that is allowed already.
std::vector<std::byte> fetch_remote(const RemoteUrl& url, const RemotePictures& allowed, const FetchTrust& trust,
                                    const std::string& name);

}  // namespace ferry
