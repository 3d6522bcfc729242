#include "runtime/options/serve_options.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "runtime/options/option_checks.h"

namespace ferry {
namespace {

enum class Unit { kBytes, kCount };

struct WholeLimit {
  const char* option;
  int64_t ServerLimits::*field;
  Unit unit;
  int64_t lowest, highest;
  const char* help;
};

struct SecondsLimit {
  const char* option;
  double ServerLimits::*field;
  const char* help;
};

constexpr int64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;

using L = ServerLimits;
constexpr WholeLimit kWholeLimits[] = {
    {"--http-body-bytes", &L::http_body_bytes, Unit::kBytes, kKiB, kGiB, "of one HTTP request's body"},
    {"--http-total-body-bytes", &L::http_total_body_bytes, Unit::kBytes, kKiB, 64 * kGiB, "of all HTTP bodies held at once"},
    {"--http-header-bytes", &L::http_header_bytes, Unit::kBytes, kKiB, kMiB, "of an HTTP request's line and headers"},
    {"--http-headers", &L::http_headers, Unit::kCount, 8, 10000, "headers of an HTTP request"},
    {"--http-stream-bytes", &L::http_stream_bytes, Unit::kBytes, 16 * kKiB, kGiB,
     "of one streamed answer, waiting for its client"},
    {"--http-json-depth", &L::http_json_depth, Unit::kCount, 8, 256, "levels of the JSON of a request for the model"},
    {"--http-json-values", &L::http_json_values, Unit::kCount, 64, 1 << 26, "values of the JSON of a request for the model"},
    {"--http-connections", &L::http_connections, Unit::kCount, 1, 60000, "HTTP connections; the oldest idle one makes room"},
    {"--grpc-message-bytes", &L::grpc_message_bytes, Unit::kBytes, kKiB, kGiB, "of one gRPC message"},
    {"--grpc-metadata-bytes", &L::grpc_metadata_bytes, Unit::kBytes, kKiB, kMiB, "of one gRPC call's metadata"},
    {"--grpc-memory-bytes", &L::grpc_memory_bytes, Unit::kBytes, kMiB, 64 * kGiB, "of gRPC's buffers together"},
    {"--grpc-connections", &L::grpc_connections, Unit::kCount, 1, 60000, "gRPC connections"},
    {"--grpc-streams", &L::grpc_streams, Unit::kCount, 1, 10000, "calls at once on one gRPC connection"},
    {"--prompt-bytes", &L::prompt_bytes, Unit::kBytes, 1, kGiB, "of one prompt's text, or its messages together"},
    {"--chat-messages", &L::chat_messages, Unit::kCount, 1, 1 << 20, "messages of one conversation"},
    {"--stop-strings", &L::stop_strings, Unit::kCount, 0, 1024, "stop strings of one request"},
    {"--pictures", &L::pictures, Unit::kCount, 0, 4096, "pictures and videos of one request"},
    {"--video-frames", &L::video_frames, Unit::kCount, 0, 4096, "frames of one request's videos together"},
    {"--stop-bytes", &L::stop_bytes, Unit::kBytes, 1, 64 * kKiB, "of one stop string"},
};

constexpr SecondsLimit kSecondsLimits[] = {
    {"--http-header-seconds", &L::http_header_s, "for an HTTP client to send request line and headers (and to shake hands)"},
    {"--http-body-seconds", &L::http_body_s, "for an HTTP client to send a body"},
    {"--http-write-seconds", &L::http_write_s, "for an HTTP client to take an answer"},
    {"--http-idle-seconds", &L::http_idle_s, "between two requests of an HTTP connection"},
    {"--grpc-idle-seconds", &L::grpc_idle_s, "without a call until a gRPC connection is closed"},
    {"--picture-fetch-seconds", &L::picture_fetch_s, "for all pictures of a request together to come from other hosts"},
};

/// "16MiB", "1500": as --help shows bytes and options take them.
std::string size_text(int64_t bytes) {
  if (bytes % kGiB == 0) return std::to_string(bytes / kGiB) + "GiB";
  if (bytes % kMiB == 0) return std::to_string(bytes / kMiB) + "MiB";
  if (bytes % kKiB == 0) return std::to_string(bytes / kKiB) + "KiB";
  return std::to_string(bytes);
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", seconds);
  return text;
}

void add_limits(CLI::App& app, ServerLimits& limits) {
  const char* group = "What a client may take, at most";
  for (const WholeLimit& limit : kWholeLimits) {
    int64_t& value = limits.*limit.field;
    const bool is_size = limit.unit == Unit::kBytes;
    const std::string is_default = "; default " + (is_size ? size_text(value) : std::to_string(value));
    CLI::Option* option = app.add_option(limit.option, value, (is_size ? "bytes " : "") + (limit.help + is_default));
    if (is_size) {
      const std::string range = size_text(limit.lowest) + " to " + size_text(limit.highest);
      option->transform(size_in(limit.lowest, limit.highest, range));
    } else {
      option->check(integer_in(limit.lowest, limit.highest));
    }
    option->group(group);
  }
  for (const SecondsLimit& limit : kSecondsLimits) {
    double& value = limits.*limit.field;
    const std::string help = std::string("seconds ") + limit.help + "; default " + seconds_text(value);
    app.add_option(limit.option, value, help)->check(number_in(0.1, 86400.0, "0.1 to 86400 seconds"))->group(group);
  }
}

void add_access(CLI::App& app, AccessOptions& access) {
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

}  // namespace

void add_serve_options(CLI::App& app, ServeOptions& options) {
  app.add_option("--grpc", options.grpc_address, "HOST:PORT to serve gRPC on; port 0 chooses one; default 127.0.0.1:50051");
  app.add_option("--http", options.http_address,
                 "HOST:PORT for OpenAI's and Anthropic's APIs, a page that shows the job at /, GET /health and /metrics, POST "
                 "/start_profile and /stop_profile, or off; default 127.0.0.1:8000");
  app.add_option_function<std::string>(
      "--trace-dir", [&options](const std::string& folder) { options.trace_dir = folder; },
      "folder that all captures stay below (default traces); if given, also for the last steps before a rank was lost");
  app.add_option("--otlp-traces-endpoint", options.otlp_endpoint,
                 "http[s]://HOST[:PORT][/PATH] of a collector that gets a span of each request, as OTLP's JSON; without a path "
                 "/v1/traces; the environment's OTEL_SERVICE_NAME names the service (ferry); default: none")
      ->check(
          [](const std::string& url) { return url.empty() ? complaint(url, "http[s]://HOST[:PORT][/PATH]") : std::string(); });
  app.add_option("--allow-remote-images", options.remote_images,
                 "HOST[:PORT],… that requests may name pictures of, which are then fetched; never from private addresses; "
                 "default: none")
      ->check([](const std::string& hosts) { return hosts.empty() ? "an empty list; allowed: HOST[:PORT],…" : ""; });
  app.add_option("--drain-timeout", options.drain_timeout_s, "seconds that open requests get after SIGTERM; default 30")
      ->check(number_in(0.0, 86400.0, "0 to 86400 seconds"));
  add_api_options(app, options.api);
  add_access(app, options.access);
  add_limits(app, options.limits);
}

std::string check_together(const ServeOptions& options) {
  const AccessOptions& access = options.access;
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
