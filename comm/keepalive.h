#pragma once

namespace ferry {

/// Has the kernel give up a TCP connection whose peer's host is silent for about 5 s. Not while bytes of ours are unanswered:
/// TCP_USER_TIMEOUT, which would, takes a peer that has not read for as long for one that is gone. Deadlines are for that.
void enable_keepalive(int socket);

}  // namespace ferry
