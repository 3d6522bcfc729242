#pragma once

#include <optional>

#include "runtime/base/file_descriptor.h"

namespace ferry {

/// Two connected stream sockets of this process, non-blocking and close-on-exec.
struct SocketPair {
  FileDescriptor named;  // what getpeername() of the other tells: a name that no other socket has while this one is open
  FileDescriptor other;
};

/// Returns nothing where descriptors or memory have run out.
std::optional<SocketPair> make_socket_pair();

}  // namespace ferry
