#include "runtime/server/http/client_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace ferry {
namespace {

constexpr int kSilence = 30;             // seconds, until the first question
constexpr int kInterval = 10;            // seconds, between questions
constexpr int kQuestions = 3;            // without an answer, and the other end is gone
constexpr double kMaxUserTimeout = 1e9;  // ms

void set(int socket, int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof value); }

}  // namespace

void set_client_options(int socket, double write_s) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSilence);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kInterval);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kQuestions);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min(write_s * 1e3, kMaxUserTimeout)));
}

}  // namespace ferry
