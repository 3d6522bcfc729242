#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/support/certificate.h"

namespace ferry::test {

/// One end of a connection, plain or under TLS.
class ScriptedConnection {
 public:
  ScriptedConnection(int socket, SSL* tls, const std::atomic<bool>& is_over) : socket_(socket), tls_(tls), is_over_(is_over) {}

  /// Everything up to the empty line; less if the client leaves before.
  std::string read_head() {
    std::string head;
    char byte = 0;
    while (!head.ends_with("\r\n\r\n")) {
      if ((tls_ != nullptr ? SSL_read(tls_, &byte, 1) : static_cast<int>(::read(socket_, &byte, 1))) != 1) break;
      head += byte;
    }
    return head;
  }
  /// False once the client is gone.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const auto sent = tls_ != nullptr ? SSL_write(tls_, text.data(), static_cast<int>(text.size()))
                                        : ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Until the client leaves or the server goes.
  void wait() const {
    pollfd file{.fd = socket_, .events = POLLRDHUP, .revents = 0};
    while (!is_over_ && poll(&file, 1, 10) == 0) {
    }
  }

 private:
  int socket_;
  SSL* tls_;
  const std::atomic<bool>& is_over_;
};

/// Answers connections on 127.0.0.1, one after another, as a test says.
class ScriptedServer {
 public:
  using Script = std::function<void(ScriptedConnection& connection, const std::string& head)>;

  explicit ScriptedServer(Script script, const Certificate* certificate = nullptr)
      : script_(std::move(script)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t num_bytes = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, plain, num_bytes) != 0 || listen(listener_, 8) != 0 || getsockname(listener_, plain, &num_bytes) != 0)
      throw std::runtime_error("no socket to listen on");
    port_ = ntohs(address.sin_port);
    if (certificate != nullptr) show(*certificate);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    is_over_ = true;
    thread_.join();
    close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  int port() const { return port_; }
  int num_connections() const { return num_connections_; }

 private:
  void show(const Certificate& certificate) {
    const auto bio = [](const std::string& pem) {
      return std::unique_ptr<BIO, decltype(&BIO_free)>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
    };
    const std::unique_ptr<X509, decltype(&X509_free)> shown(
        PEM_read_bio_X509(bio(certificate.certificate).get(), nullptr, nullptr, nullptr), X509_free);
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
        PEM_read_bio_PrivateKey(bio(certificate.key).get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
    tls_.reset(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_use_certificate(tls_.get(), shown.get());
    SSL_CTX_use_PrivateKey(tls_.get(), key.get());
  }

  void serve() {
    sigset_t broken_pipe;  // OpenSSL writes to whoever left
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    while (!is_over_) {
      pollfd file{.fd = listener_, .events = POLLIN, .revents = 0};
      if (poll(&file, 1, 10) != 1) continue;
      const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      ++num_connections_;
      const std::unique_ptr<SSL, decltype(&SSL_free)> tls(tls_ ? SSL_new(tls_.get()) : nullptr, SSL_free);
      if (tls) SSL_set_fd(tls.get(), socket);
      if (!tls || SSL_accept(tls.get()) == 1) {
        ScriptedConnection connection(socket, tls.get(), is_over_);
        const std::string head = connection.read_head();
        script_(connection, head);
        if (tls) SSL_shutdown(tls.get());
      }
      close(socket);
    }
  }

  Script script_;
  int listener_;
  int port_ = 0;
  std::atomic<bool> is_over_ = false;
  std::atomic<int> num_connections_ = 0;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tls_{nullptr, SSL_CTX_free};
  std::thread thread_;
};

}  // namespace ferry::test
