#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ferry {

/// What a stranger may take of the coordinator, on both ports. Every bound holds before the bytes are read or kept. The options
/// of `ferry serve` have the same names.
struct ServerLimits {
  // HTTP
  int64_t http_body_bytes = int64_t{16} << 20;         // of one request
  int64_t http_total_body_bytes = int64_t{256} << 20;  // of all requests that are being received or answered
  int64_t http_header_bytes = int64_t{16} << 10;       // request line and headers
  int64_t http_headers = 100;                          // of one request
  int64_t http_connections = 1024;                     // fewer where the system gives fewer descriptors
  double http_header_s = 10;                           // for TLS's handshake, then for request line and headers
  double http_body_s = 60;                             // for the body, from the headers' end
  double http_write_s = 30;                            // for a client to take an answer
  double http_idle_s = 60;                             // between two requests of a connection
  int64_t http_stream_bytes = int64_t{1} << 20;        // of one streamed answer that wait for its client
  int64_t http_json_depth = 64;                        // of a body for the model; other routes have less
  int64_t http_json_values = int64_t{1} << 20;         // of one such body: a prompt of tokens has as many
  // gRPC
  int64_t grpc_message_bytes = int64_t{64} << 20;   // of one message, either way; less where no request can need so much
  int64_t grpc_metadata_bytes = int64_t{16} << 10;  // headers of one call
  int64_t grpc_memory_bytes = int64_t{512} << 20;   // buffers of all connections; as much again for messages of open calls
  int64_t grpc_connections = 1024;                  // fewer where the system gives fewer descriptors
  int64_t grpc_streams = 256;                       // calls at once on one connection
  double grpc_idle_s = 300;                         // without a call, until a connection is closed
  // Of one request for tokens, whatever port it came through
  int64_t answer_bytes = int64_t{256} << 20;      // of its answer, as it is kept and as text together (server/answer_bytes.h)
  int64_t total_answer_bytes = int64_t{1} << 30;  // of the answers of all calls of a port
  int64_t prompt_bytes = int64_t{4} << 20;        // text, or messages together
  int64_t chat_messages = 1024;                   // of one conversation
  int64_t pictures = 16;                          // pictures and videos
  int64_t video_frames = 768;                     // of all videos together
  double picture_fetch_s = 10;                    // for all files of a request to come from other hosts
  std::vector<std::string> picture_hosts;         // as parse_remote_hosts() makes them; none: nothing is fetched
  int64_t stop_strings = 16;
  int64_t stop_bytes = 1024;  // of one stop string
};

/// The options that bound the ports themselves, HTTP's and gRPC's.
void add_port_limits(CLI::App& app, ServerLimits& limits);
/// These and those of a request for tokens.
void add_server_limits(CLI::App& app, ServerLimits& limits);

}  // namespace ferry
