#include "comm/gloo/gloo_mesh.h"

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <cstring>
#include <exception>
#include <filesystem>
#include <vector>

#include "comm/keepalive.h"
#include "comm/net_address.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

using Context = gloo::transport::Context;

// One rank's listening address for one of its peers. gloo listens on a port per peer.
struct WireAddress {
  uint32_t num_bytes = 0;  // 0: no address, because it could not be opened or the two are not connected
  std::array<char, gloo::transport::Address::kMaxByteSize> bytes{};
};

// gloo writes to connections that the peer may just have closed, from several threads, and leaves the signal to the process.
// A handler that somebody installed stays.
void ignore_broken_pipes() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

// Starts gloo's event thread and listens for every peer.
std::shared_ptr<Context> open_context(const std::string& address, Group& bootstrap, std::span<const Rank> peers,
                                      const GlooOptions& options) {
  const gloo::transport::tcp::attr attributes(address.c_str());
  auto context = gloo::transport::tcp::CreateDevice(attributes)->createContext(bootstrap.rank().value, bootstrap.size());
  context->setTimeout(std::max(options.connect_timeout / 5, std::chrono::milliseconds(1)));  // gloo connects for 5 of these
  for (const Rank peer : peers) context->createPair(peer.value);
  return context;
}

// Sends every rank this rank's addresses. The result holds at [from * size + to] where rank `from` listens for rank `to`.
std::vector<WireAddress> exchange_addresses(Group& bootstrap, std::span<const Rank> peers, Context* context,
                                            Deadline deadline) {
  const auto num_ranks = static_cast<std::size_t>(bootstrap.size());
  std::vector<WireAddress> mine(num_ranks);
  for (const Rank peer : context == nullptr ? std::span<const Rank>() : peers) {
    const std::vector<char> bytes = context->getPair(peer.value)->address().bytes();
    WireAddress& wire = mine[static_cast<std::size_t>(peer.value)];
    FERRY_CHECK_LE(bytes.size(), wire.bytes.size());
    wire.num_bytes = static_cast<uint32_t>(bytes.size());
    std::memcpy(wire.bytes.data(), bytes.data(), bytes.size());
  }
  std::vector<WireAddress> all(num_ranks * num_ranks);
  bootstrap.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), deadline);
  return all;
}

// gloo keeps its sockets to itself, so the socket of a pair is found by its local address, which is unique in the process.
void keep_pair_alive(const sockaddr_storage& local) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string digits = entry.path().filename().string();
    int fd = -1;
    std::from_chars(digits.data(), digits.data() + digits.size(), fd);
    sockaddr_storage name{};
    socklen_t name_bytes = sizeof(name);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &name_bytes) != 0) continue;
    if (name.ss_family != local.ss_family || std::memcmp(&name, &local, name_bytes) != 0) continue;
    enable_keepalive(fd);
    return;
  }
}

void connect_pair(Context& context, Rank peer, const WireAddress& wire) {
  if (wire.num_bytes == 0) {
    throw Error(ErrorCode::kUnavailable,
                "[gloo] rank " + std::to_string(peer.value) + " could not open an address; its own error says why");
  }
  try {
    auto& pair = context.getPair(peer.value);
    pair->connect(std::vector<char>(wire.bytes.begin(), wire.bytes.begin() + wire.num_bytes));
    keep_pair_alive(gloo::transport::tcp::Address(pair->address().bytes()).getSockaddr());
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kUnavailable,
                "[gloo] cannot connect to rank " + std::to_string(peer.value) + ": " + gloo_error_text(error));
  }
}

}  // namespace

std::shared_ptr<Context> connect_mesh(Group& bootstrap, std::span<const Rank> peers, const GlooOptions& options) {
  ignore_broken_pipes();
  const Deadline deadline = std::chrono::steady_clock::now() + options.connect_timeout;
  const bool is_one_host = all_share_a_host(bootstrap, deadline);
  // A rank that cannot listen still takes part in the exchange, so that its peers fail at once and not at the deadline.
  std::shared_ptr<Context> context;
  std::exception_ptr own_error;
  try {
    context = open_context(choose_net_address(options.net_interface, is_one_host), bootstrap, peers, options);
  } catch (const Error&) {
    own_error = std::current_exception();
  } catch (const std::exception& error) {
    own_error = std::make_exception_ptr(Error(ErrorCode::kUnavailable, "[gloo] cannot listen: " + gloo_error_text(error)));
  }
  const std::vector<WireAddress> addresses = exchange_addresses(bootstrap, peers, context.get(), deadline);
  if (own_error) std::rethrow_exception(own_error);
  for (const Rank peer : peers) {
    const int pair = peer.value * bootstrap.size() + bootstrap.rank().value;
    connect_pair(*context, peer, addresses[static_cast<std::size_t>(pair)]);
  }
  return context;
}

std::string gloo_error_text(const std::exception& error) {
  const std::string text = error.what();
  const std::size_t end_of_place = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end_of_place == std::string::npos ? text : text.substr(end_of_place + 2);
}

}  // namespace ferry
