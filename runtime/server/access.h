#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/options/access_options.h"

// Who may use the ports: API keys and TLS, read once at start and then the same for HTTP and gRPC.

namespace ferry {

/// The keys that open the ports. Only their digests are kept. Any thread may ask.
class ApiKeys {
 public:
  static constexpr std::size_t kMinBytes = 8, kMaxBytes = 512;  // of a key: printable ASCII without spaces

  ApiKeys() = default;
  /// Throws Error{kInvalidArgument} that says which key (by number, never by content) is not one.
  explicit ApiKeys(const std::vector<std::string>& keys);
  /// The same with a name for each key, for logs; without one it is "key 1" and so on.
  ApiKeys(const std::vector<std::string>& keys, std::vector<std::string> names);

  /// Without any key the ports are open.
  bool empty() const { return digests_.empty(); }
  std::size_t size() const { return digests_.size(); }
  /// Which key `presented` is: its place in the list, which names the caller. Takes the same time whether and where it is
  /// found.
  std::optional<int> find(std::string_view presented) const;
  /// Name of the key that find() has found, for logs.
  const std::string& name(int key) const { return names_[static_cast<std::size_t>(key)]; }

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest_of(std::string_view text);
  std::vector<Digest> digests_;
  std::vector<std::string> names_;  // of each
};

/// Contents of PEM files.
struct TlsIdentity {
  std::string certificate_chain;
  std::string private_key;
  std::string client_ca;  // empty: clients need no certificate
};

struct Access {
  ApiKeys keys;
  std::optional<TlsIdentity> tls;              // absent: plain text
  std::vector<std::string> allowed_hosts{};    // lower case
  std::vector<std::string> allowed_origins{};  // lower case; or "*"
};

/// The keys of a file, a line each. Throws Error that names --api-key-file for one that cannot be read, holds none or one that
/// is no key.
std::vector<std::string> read_key_file(const std::filesystem::path& file);

/// Reads what `options` names. Throws Error with the option's name for a file that cannot be read or holds no key.
Access load_access(const AccessOptions& options);

/// A server that listens on all addresses of this machine may be asked by any name of it: if `http_address` (HOST:PORT, or off)
/// is that, own_hosts() are allowed, too.
void allow_own_hosts(Access& access, const std::string& http_address);

/// Returns one line with the names that HTTP answers to, if `http_address` is on all addresses.
std::optional<std::string> allowed_names(const std::string& http_address, const Access& access);

/// The key that a caller presents, empty if none: what follows "Bearer ", in whatever case that is written, in `authorization`,
/// or else `x_api_key`. Both as sent, empty where absent.
std::string_view presented_key(std::string_view authorization, std::string_view x_api_key);

/// One line for whoever opens a port to the network without a key: `port` is "http" or "grpc", `address` HOST:PORT. Absent if
/// the address is loopback, or callers need a key or a certificate.
std::optional<std::string> open_port_warning(const std::string& port, const std::string& address, const Access& access);

}  // namespace ferry
