#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ferry {

/// Who may use the ports of `ferry serve` or `ferry front`, as asked for: file names, not contents (runtime/server/access.h
/// reads them).
struct AccessOptions {
  std::filesystem::path api_key_file;       // one key a line; empty: none
  std::optional<std::string> api_key;       // from the environment (FERRY_API_KEY); valid beside those of the file
  std::filesystem::path tls_cert, tls_key;  // PEM, both or neither; neither: no TLS
  std::filesystem::path tls_client_ca;      // PEM; given: clients must show a certificate that it signed
  std::vector<std::string> allowed_hosts;   // names of this server beyond loopback and the bound address, for HTTP's Host
  std::vector<std::string>
      allowed_origins;  // of other sites' pages that may use HTTP, "https://chat.example:8080", or "*": all
};

void add_access_options(CLI::App& app, AccessOptions& access);

/// What no single option can tell. Empty if all is well.
std::string check_together(const AccessOptions& access);

}  // namespace ferry
