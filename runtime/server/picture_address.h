#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Where a request says that a picture is: in the request itself, as a data URL, or on another host. Nothing here speaks to that
// host; picture_fetch.h does. `name` begins the messages: "picture 2". Any thread may call.

namespace ferry {

/// Whether `url` begins with "data:", in whatever case.
bool is_data_url(std::string_view url);

/// What data:[TYPE][;PARAMETER…];base64,DATA holds (RFC 2397), at most `max_bytes` (1 ‥ 2^30) of it, checked while nothing is
/// decoded yet. DATA is read as browsers do: percent-encoded characters and white space are allowed, padding may be missing;
/// '-' and '_' may stand for '+' and '/'. TYPE is image/…, application/octet-stream or nothing, and is not believed: the
/// contents decide.
///
/// Throws Error{kInvalidArgument} that holds no more than the beginning of `url`.
std::vector<std::byte> read_data_url(std::string_view url, int64_t max_bytes, const std::string& name = "picture");

/// What of an http or https URL is needed to fetch it.
struct RemoteUrl {
  std::string scheme;  // http, https
  std::string host;    // lower case: letters, digits, '.', '-', '_'
  int port = 0;        // 1 ‥ 65535
  std::string target;  // path and query: begins with '/', visible ASCII

  /// Written so that no reader of URLs sees another host in it.
  std::string text() const { return scheme + "://" + host + ":" + std::to_string(port) + target; }
};

/// `url`, if its host is one of `hosts`, as parse_remote_hosts makes them: the very name, at the very port or at the
/// scheme's own one where the entry has none. Users, passwords, IPv6 addresses, spaces, controls and characters beyond ASCII
/// are refused.
///
/// Throws Error{kInvalidArgument}.
RemoteUrl parse_remote_url(std::string_view url, const std::vector<std::string>& hosts, const std::string& name = "picture");

/// The hosts that would be asked for the files at `urls`, each once. URLs that parse_remote_url() refuses, and
/// data URLs, ask none.
std::vector<std::string> hosts_to_ask(std::span<const std::string_view> urls, const std::vector<std::string>& allowed);

/// The value of --allow-remote-images, HOST[:PORT],…: its entries in lower case. A host is a name or a public IPv4 address,
/// without scheme, path or wildcard.
///
/// Throws Error{kInvalidArgument} that names option, entry and what is allowed.
std::vector<std::string> parse_remote_hosts(const std::string& text);

}  // namespace ferry
