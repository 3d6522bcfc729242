#include "runtime/options/top_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/option_checks.h"

namespace ferry {

void add_top_options(CLI::App& app, TopOptions& o) {
  app.add_option("target", o.target,
                 "HOST:PORT of a server's HTTP port, or http[s]://HOST[:PORT][/PATH]; default 127.0.0.1:8000");
  app.add_option("--interval", o.interval_s, "seconds between two looks; default 1")
      ->check(number_in(0.1, 3600.0, "0.1 to 3600 seconds"));
  app.add_flag("--once", o.once, "print one frame, of two looks one interval apart, and leave");
  app.add_flag("--json", o.json, "print the status as the server has it (/status.json), one line a look");
  const auto add_file = [&](const char* name, std::filesystem::path& path, const char* help) {
    app.add_option_function<std::string>(
           name, [&path](const std::string& text) { path = text; }, help)
        ->check([](const std::string& text) { return text.empty() ? complaint(text, "a file") : std::string(); });
  };
  add_file("--api-key-file", o.api_key_file,
           "file whose first key is presented, where the environment's FERRY_API_KEY is not set; default: none");
  add_file("--tls-ca", o.tls_ca, "PEM file of who signs the server's certificate; default: the system's authorities");
  add_file("--tls-cert", o.tls_cert, "PEM file of the certificate that this client shows; default: none");
  add_file("--tls-key", o.tls_key, "PEM file of that certificate's private key");
}

std::string check_together(const TopOptions& o) {
  if (o.tls_cert.empty() != o.tls_key.empty()) {
    return o.tls_cert.empty() ? "--tls-key: given without --tls-cert; allowed: both or neither"
                              : "--tls-cert: given without --tls-key; allowed: both or neither";
  }
  if (o.api_key && o.api_key->empty()) return "FERRY_API_KEY: ''; allowed: a key, or no such variable";
  return "";
}

}  // namespace ferry
