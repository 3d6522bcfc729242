#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/options/port_span.h"

namespace CLI {
class App;
}  // namespace CLI

namespace ferry {

/// Where workers may join a job while it runs.
struct ElasticOptions {
  std::string address;                   // HOST:PORT or unix:NAME; empty: nowhere
  std::filesystem::path key_file;        // what workers must know, too; empty: on loopback the user's own key
  std::filesystem::path own_key_folder;  // where that is (runtime_folder)
};

/// --elastic and --join-key.
void add_elastic_options(CLI::App& app, ElasticOptions& options);
/// One for each of so many coordinators; nothing where workers join nowhere, or at no port.
std::optional<PortSpan> ports_of(const ElasticOptions& options, int coordinators);

/// `ferry worker`.
struct JoinOptions {
  std::vector<std::string> addresses;    // where coordinators listen: one or several, who share this worker
  std::filesystem::path key_file;        // as of ElasticOptions
  std::filesystem::path own_key_folder;  // as of ElasticOptions
  double join_timeout_s = 60;            // for the coordinator to be there
  double linger_s = 0;                   // with the weights loaded, for another coordinator, when this one has gone
};

/// --join, --join-key, --join-timeout and --linger.
void add_join_options(CLI::App& app, JoinOptions& options);

}  // namespace ferry
