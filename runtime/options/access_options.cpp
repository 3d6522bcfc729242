#include "runtime/options/access_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/option_checks.h"

namespace ferry {

void add_access_options(CLI::App& app, AccessOptions& access) {
  const char* group = "Who may use the ports";
  const auto add = [&](const char* name, std::filesystem::path& path, const char* help) {
    app.add_option_function<std::string>(
           name, [&path](const std::string& text) { path = text; }, help)
        ->check(
            CLI::Validator([](std::string& text) { return text.empty() ? complaint(text, "a file") : std::string(); }, "FILE"))
        ->group(group);
  };
  add("--api-key-file", access.api_key_file,
      "file of keys, one a line, of which callers must present one; the environment's FERRY_API_KEY is one more; default: "
      "none");
  add("--tls-cert", access.tls_cert,
      "PEM file of this server's certificate and those above it, for both ports; default: no TLS");
  add("--tls-key", access.tls_key, "PEM file of the certificate's private key");
  add("--tls-client-ca", access.tls_client_ca, "PEM file of who signs clients' certificates; given, clients must show one");
  app.add_option("--allowed-host", access.allowed_hosts,
                 "name, without port, that HTTP requests may give as their Host, beside loopback and the address; may be given "
                 "several times")
      ->group(group);
  app.add_option("--allowed-origin", access.allowed_origins,
                 "http[s]://HOST[:PORT] whose pages may use HTTP from a browser, or * for all; may be given several times; "
                 "default: none")
      ->group(group);
}

std::string check_together(const AccessOptions& access) {
  if (access.tls_cert.empty() != access.tls_key.empty()) {
    return access.tls_cert.empty() ? "--tls-key: given without --tls-cert; allowed: both or neither"
                                   : "--tls-cert: given without --tls-key; allowed: both or neither";
  }
  if (!access.tls_client_ca.empty() && access.tls_cert.empty())
    return "--tls-client-ca: given without --tls-cert; allowed: beside --tls-cert and --tls-key";
  if (access.api_key && access.api_key->empty()) return "FERRY_API_KEY: ''; allowed: a key, or no such variable";
  return "";
}

}  // namespace ferry
