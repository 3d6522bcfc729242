#include "runtime/options/server_limits.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <span>

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
constexpr WholeLimit kPortLimits[] = {
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
};

/// Of one request for tokens.
constexpr WholeLimit kRequestLimits[] = {
    {"--answer-bytes", &L::answer_bytes, Unit::kBytes, 64 * kKiB, 64 * kGiB, "of one answer in memory, all its choices"},
    {"--total-answer-bytes", &L::total_answer_bytes, Unit::kBytes, 64 * kKiB, 1024 * kGiB,
     "of all answers in memory that a port has not sent yet"},
    {"--prompt-bytes", &L::prompt_bytes, Unit::kBytes, 1, kGiB, "of one prompt's text, or its messages together"},
    {"--chat-messages", &L::chat_messages, Unit::kCount, 1, 1 << 20, "messages of one conversation"},
    {"--stop-strings", &L::stop_strings, Unit::kCount, 0, 1024, "stop strings of one request"},
    {"--pictures", &L::pictures, Unit::kCount, 0, 4096, "pictures and videos of one request"},
    {"--video-frames", &L::video_frames, Unit::kCount, 0, 4096, "frames of one request's videos together"},
    {"--stop-bytes", &L::stop_bytes, Unit::kBytes, 1, 64 * kKiB, "of one stop string"},
};

constexpr SecondsLimit kPortSeconds[] = {
    {"--http-header-seconds", &L::http_header_s, "for an HTTP client to send request line and headers (and to shake hands)"},
    {"--http-body-seconds", &L::http_body_s, "for an HTTP client to send a body"},
    {"--http-write-seconds", &L::http_write_s, "for an HTTP client to take an answer"},
    {"--http-idle-seconds", &L::http_idle_s, "between two requests of an HTTP connection"},
    {"--grpc-idle-seconds", &L::grpc_idle_s, "without a call until a gRPC connection is closed"},
};

constexpr SecondsLimit kRequestSeconds[] = {
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

constexpr const char* kGroup = "What a client may take, at most";

void add_whole(CLI::App& app, std::span<const WholeLimit> all, ServerLimits& limits) {
  for (const WholeLimit& limit : all) {
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
    option->group(kGroup);
  }
}

void add_seconds(CLI::App& app, std::span<const SecondsLimit> all, ServerLimits& limits) {
  for (const SecondsLimit& limit : all) {
    double& value = limits.*limit.field;
    const std::string help = std::string("seconds ") + limit.help + "; default " + seconds_text(value);
    app.add_option(limit.option, value, help)->check(number_in(0.1, 86400.0, "0.1 to 86400 seconds"))->group(kGroup);
  }
}

}  // namespace

void add_port_limits(CLI::App& app, ServerLimits& limits) {
  add_whole(app, kPortLimits, limits);
  add_seconds(app, kPortSeconds, limits);
}

void add_server_limits(CLI::App& app, ServerLimits& limits) {
  add_port_limits(app, limits);
  add_whole(app, kRequestLimits, limits);
  add_seconds(app, kRequestSeconds, limits);
}

}  // namespace ferry
