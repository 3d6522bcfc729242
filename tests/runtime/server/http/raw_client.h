#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "tests/support/eventually.h"

namespace ferry::test {

/// A TCP client that sends any bytes at all. Every read ends after kTestLimit, and fails the test.
class RawClient {
 public:
  /// Not connected.
  RawClient() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  /// Connected to HOST:PORT of the IPv4 loopback.
  explicit RawClient(const std::string& address) : RawClient() { connect(address); }
  ~RawClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawClient& operator=(RawClient&&) = delete;

  void connect(const std::string& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << address;
    // Not before: a connect() with a time-out fails where the process is stopped meanwhile.
    const timeval patience{std::chrono::seconds(kTestLimit).count(), 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }

  /// False once the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (is_interrupted(count)) continue;
      if (has_ended(count, "to send")) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  /// All that comes until the server closes.
  std::string read_all() {
    std::string text;
    char piece[4096];
    for (std::size_t count = 0; (count = receive(piece, sizeof piece)) > 0;) text.append(piece, count);
    return text;
  }

  /// What comes up to and with `end`; less if the server closes meanwhile.
  std::string read_until(std::string_view end) {
    std::string text;
    for (char next = 0; !text.ends_with(end) && receive(&next, 1) == 1;) text += next;
    return text;
  }

  /// One answer with its body, or its head alone if that does not say how long the body is; shorter if the server closes
  /// meanwhile.
  std::string read_answer() {
    const std::string text = read_until("\r\n\r\n");
    const std::size_t length = text.find("Content-Length: ");
    if (length == std::string::npos) return text;
    return text + read_bytes(static_cast<std::size_t>(std::stoi(text.substr(length + 16))));
  }

  /// The content of the next chunk; empty for the last one, and if none comes.
  std::string read_chunk() {
    const std::string size = read_until("\r\n");
    const std::string chunk = size.empty() ? size : read_bytes(std::stoul(size, nullptr, 16));
    return read_until("\r\n") == "\r\n" ? chunk : std::string();
  }

  /// Tells the server that nothing more will be sent.
  void end_sending() { ::shutdown(fd_, SHUT_WR); }
  /// Goes; with kReset what has come unread is lost, as when a program dies.
  enum class Going { kClose, kReset };
  void leave(Going how = Going::kClose) {
    const linger now{1, 0};
    if (how == Going::kReset) ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(fd_, -1));
  }

  /// Sends a request with a body, if it is not empty, and reads the answer.
  std::string ask(const std::string& line, const std::string& body = "", const std::string& headers = "") {
    std::string text = line + " HTTP/1.1\r\nHost: localhost\r\n" + headers;
    if (!body.empty()) text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    send(text + "\r\n" + body);
    return read_answer();
  }

 private:
  std::string read_bytes(std::size_t count) {
    std::string bytes(count, '\0');
    std::size_t num_read = 0;
    while (num_read < count) {
      const std::size_t num_more = receive(bytes.data() + num_read, count - num_read);
      if (num_more == 0) return "";
      num_read += num_more;
    }
    return bytes;
  }

  /// At least a byte; 0 once the server has closed.
  std::size_t receive(char* bytes, std::size_t room) {
    ssize_t count = ::recv(fd_, bytes, room, 0);
    while (is_interrupted(count)) count = ::recv(fd_, bytes, room, 0);
    return has_ended(count, "to receive") ? 0 : static_cast<std::size_t>(count);
  }

  /// As calls with a time-out are when the process was stopped meanwhile.
  static bool is_interrupted(ssize_t count) { return count < 0 && errno == EINTR; }

  static bool has_ended(ssize_t count, const char* what) {
    EXPECT_FALSE(count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        << "waited " << kTestLimit.count() << " minutes " << what << " a byte";
    return count <= 0;
  }

  int fd_;
};

/// The status of an answer, 0 if it is none.
inline int status_of(const std::string& answer) { return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0; }

}  // namespace ferry::test
