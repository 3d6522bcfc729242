#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

// A library that launch/mpirun.sh preloads into mpirun and its daemons (and, on several hosts, into the ranks). Open MPI 4.1
// listens on every address of a host, whatever its options say, and a few stray bytes on such a port lock it up. What would be
// bound to every address is bound here to where FERRY_LISTEN_ON says:
//
//   none         to loopback, and every packet is dropped: a job on one host needs none of these ports
//   an address   to this address
//   a name       to the address of this interface (the first one of the family that is asked for)
//
// An IPv6 socket for which there is no such address (the address is of IPv4, the interface has none of IPv6) is bound to ::1,
// where the host has that: it would be open to everybody, and nobody of the job comes there. An IPv4 one stays as it is then,
// as all do without the variable.

namespace {

const char* listen_on() { return std::getenv("FERRY_LISTEN_ON"); }

bool is_none() { return listen_on() != nullptr && std::strcmp(listen_on(), "none") == 0; }

/// Replaces the "any" in `address` by loopback.
void name_loopback(sockaddr_storage& address) {
  if (address.ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (address.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr = in6addr_loopback;
}

/// Replaces it by what FERRY_LISTEN_ON says, an address or an interface; false where that has no address of this family.
bool name_wanted(sockaddr_storage& address) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  const bool is_v4 = address.ss_family == AF_INET;
  void* place = is_v4 ? static_cast<void*>(&v4->sin_addr) : static_cast<void*>(&v6->sin6_addr);
  if (inet_pton(address.ss_family, listen_on(), place) == 1) return true;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool is_found = false;
  for (const ifaddrs* entry = list; entry != nullptr && !is_found; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != address.ss_family) continue;
    if (std::strcmp(entry->ifa_name, listen_on()) != 0) continue;
    is_found = true;
    if (is_v4) v4->sin_addr = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    if (!is_v4) v6->sin6_addr = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    if (!is_v4) v6->sin6_scope_id = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_scope_id;
  }
  freeifaddrs(list);
  return is_found;
}

bool is_any(const sockaddr* address, socklen_t bytes) {
  if (address->sa_family == AF_INET && bytes >= sizeof(sockaddr_in))
    return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == htonl(INADDR_ANY);
  if (address->sa_family != AF_INET6 || bytes < sizeof(sockaddr_in6)) return false;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
}

void drop_all_packets(int socket) {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &nothing};
  setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

}  // namespace

/// Stands before the C library's function of the same name.
extern "C" __attribute__((visibility("default"))) int bind(int socket, const sockaddr* address, socklen_t bytes) noexcept {
  using Bind = int (*)(int, const sockaddr*, socklen_t);
  static const auto next = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  int type = 0;
  socklen_t type_bytes = sizeof type;
  const bool is_tcp = getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_STREAM;
  if (!is_tcp || listen_on() == nullptr || address == nullptr || !is_any(address, bytes)) return next(socket, address, bytes);
  sockaddr_storage wanted{};
  std::memcpy(&wanted, address, bytes < sizeof wanted ? bytes : sizeof wanted);
  const bool is_placed = !is_none() && name_wanted(wanted);
  if (!is_placed && !is_none() && address->sa_family == AF_INET) return next(socket, address, bytes);
  if (!is_placed) name_loopback(wanted);
  if (is_none()) drop_all_packets(socket);
  const int result = next(socket, reinterpret_cast<const sockaddr*>(&wanted), bytes);
  const bool lacks_loopback = result != 0 && errno == EADDRNOTAVAIL && !is_placed;  // and so has no IPv6 at all
  return lacks_loopback ? next(socket, address, bytes) : result;
}
