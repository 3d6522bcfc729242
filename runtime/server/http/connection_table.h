#pragma once

#include <cstdint>
#include <list>
#include <memory>

namespace ferry {

/// What a connection waits for.
enum class ConnectionPhase {
  kIdle,    // the first byte of a request
  kHeader,  // the rest of the request line and headers, or TLS's handshake
  kBody,
  kAnswer,  // a handler: for its answer, or for more of it
  kSend,    // the client to take the answer's end
};

class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  /// Closes the socket at once; what was pending on it ends with an error.
  virtual void close() = 0;
};

/// The open connections of a server and the bytes that their bodies take: who makes room when there are too many. Used by the
/// I/O thread alone.
class ConnectionTable {
 public:
  using Entry = std::list<std::pair<std::weak_ptr<HttpConnection>, ConnectionPhase>>::iterator;

  ConnectionTable(int64_t max_connections, int64_t max_body_bytes)
      : max_connections_(max_connections), max_body_bytes_(max_body_bytes) {}
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  /// As kIdle.
  Entry add(std::weak_ptr<HttpConnection> connection);
  /// Makes it the youngest of its phase.
  void set_phase(Entry entry, ConnectionPhase phase);
  void remove(Entry entry);

  bool empty() const { return num_connections() == 0; }
  int64_t num_connections() const;
  int64_t num_connections(ConnectionPhase phase) const {
    return static_cast<int64_t>(lines_[static_cast<std::size_t>(phase)].size());
  }
  bool is_full() const { return num_connections() >= max_connections_; }
  /// Closes the connection that keeps the server waiting longest: of the idle ones, else of those in their headers, else of
  /// those in their bodies; never one whose handler is at work, or whose answer is on its way. False if there is none.
  bool close_longest_waiting();
  /// Closes all that no answer is made for or sent to.
  void close_waiting();
  void close_all();

  /// Takes `num_bytes` of what all bodies may have together; another connection that is still sending its body may have to go.
  /// False if there is no room even so.
  bool take_body_bytes(int64_t num_bytes, Entry self);
  void give_body_bytes(int64_t num_bytes) { body_bytes_ -= num_bytes; }

 private:
  using Line = std::list<std::pair<std::weak_ptr<HttpConnection>, ConnectionPhase>>;
  Line& line(ConnectionPhase phase) { return lines_[static_cast<std::size_t>(phase)]; }
  bool close_oldest(ConnectionPhase phase, const HttpConnection* except);

  const int64_t max_connections_;
  const int64_t max_body_bytes_;
  int64_t body_bytes_ = 0;
  Line lines_[5];  // by phase; the oldest first
};

}  // namespace ferry
