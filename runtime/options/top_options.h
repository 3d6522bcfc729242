#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace ferry {

/// Of `ferry top`.
struct TopOptions {
  std::string target = "127.0.0.1:8000";    // HOST:PORT of the HTTP port, or http[s]://HOST[:PORT][/PATH]
  double interval_s = 1;                    // between two looks
  bool once = false;                        // one frame, then leave
  bool json = false;                        // the status itself, a line a look
  std::filesystem::path api_key_file;       // whose first key is presented; empty: none
  std::optional<std::string> api_key;       // from the environment (FERRY_API_KEY), in place of the file's
  std::filesystem::path tls_ca;             // PEM; empty: the system's authorities
  std::filesystem::path tls_cert, tls_key;  // PEM, both or neither: what this client shows
  std::string term;                         // from the environment (TERM): what the terminal can
  bool no_color = false;                    // likewise (NO_COLOR)

  bool asks_for_tls() const { return !tls_ca.empty() || !tls_cert.empty(); }
};

void add_top_options(CLI::App& app, TopOptions& options);

/// What no single option can tell. Empty if all is well.
std::string check_together(const TopOptions& options);

}  // namespace ferry
