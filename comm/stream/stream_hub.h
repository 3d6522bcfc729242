#pragma once

#include <memory>

#include "comm/link.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {

/// Links over connected stream sockets (TCP, or of one host AF_UNIX). Who waits moves the messages itself, so that one of a few
/// KiB passes through no other thread; what is larger than the sockets' buffers goes on while nobody waits, on a thread that
/// also notices ends: of a process within a millisecond, of a host that vanishes after about 5 s (TCP keepalive). A process
/// that is stopped or stuck is alive: only deadlines notice that.
class StreamHub final : public LinkHub {
 public:
  /// `on_end` may be empty.
  explicit StreamHub(OnLinkEnd on_end = {});
  /// Its links should be gone; those that are not are good for destruction only.
  ~StreamHub() override;
  StreamHub(const StreamHub&) = delete;
  StreamHub& operator=(const StreamHub&) = delete;

  /// A link over `socket`, which is connected. `peer` names it in errors and need not be unique. Any thread may call this.
  std::unique_ptr<Link> adopt(FileDescriptor socket, Rank peer);

  std::size_t wait_any(std::span<PendingOp* const> ops, Deadline deadline) override;

 private:
  friend class StreamLink;
  class Core;
  const std::shared_ptr<Core> core_;  // shared with the links
};

}  // namespace ferry
