#include "runtime/options/elastic_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/option_checks.h"

namespace ferry {
namespace {

void add_key_file(CLI::App& app, std::filesystem::path& file) {
  app.add_option("--join-key", file,
                 "file with the key that workers and coordinator share, 16 bytes or more; default: on loopback one that the "
                 "user's processes on this host make and find by themselves, elsewhere it is required");
}

}  // namespace

void add_elastic_options(CLI::App& app, ElasticOptions& options) {
  app.add_option("--elastic", options.address,
                 "HOST:PORT, or unix:NAME on one host, where workers may join while requests run (ferry worker --join); "
                 "without mpirun all of them do, and until one has, the coordinator computes experts itself; default: nowhere")
      ->check([](const std::string& text) { return text.empty() ? complaint(text, "HOST:PORT or unix:NAME") : std::string(); });
  add_key_file(app, options.key_file);
}

std::optional<PortSpan> ports_of(const ElasticOptions& options, int coordinators) {
  if (options.address.empty() || options.address.starts_with("unix:")) return std::nullopt;
  return PortSpan{.option = "--elastic", .address = options.address, .more = coordinators - 1, .coordinators = coordinators};
}

void add_join_options(CLI::App& app, JoinOptions& options) {
  app.add_option(
         "--join", options.addresses,
         "HOST:PORT, or unix:NAME, where a coordinator listens (--elastic); may be given several times: then the worker "
         "holds experts for all of them, once, and computes what waits for one layer together")
      ->required()
      ->allow_extra_args(false);
  add_key_file(app, options.key_file);
  app.add_option("--join-timeout", options.join_timeout_s, "seconds for a coordinator to be there; default 60")
      ->check(number_in(0.1, 86400.0 * 365, "0.1 to 31536000 seconds"));
  app.add_option("--linger", options.linger_s,
                 "seconds to wait with the weights loaded for another coordinator at the same address when this one has gone; "
                 "default 0: leave with it")
      ->check(number_in(0.0, 86400.0 * 365, "0 to 31536000 seconds"));
}

}  // namespace ferry
