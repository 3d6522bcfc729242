#pragma once

#include <sys/socket.h>

#include <memory>
#include <utility>

#include "comm/stream/stream_hub.h"
#include "runtime/base/check.h"

namespace ferry {

/// Two connected sockets of one host.
inline std::pair<FileDescriptor, FileDescriptor> connected_sockets() {
  int ends[2];
  FERRY_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// A link seen from both ends, each of a hub that others may share.
struct LinkPair {
  LinkPair(StreamHub& hub, Rank peer, StreamHub& other_hub, Rank other_peer) {
    auto [first, second] = connected_sockets();
    near = hub.adopt(std::move(first), peer);
    far = other_hub.adopt(std::move(second), other_peer);
  }

  std::unique_ptr<Link> near, far;
};

}  // namespace ferry
