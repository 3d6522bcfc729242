#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/failure_latch.h"
#include "comm/link.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {

class StreamState;

/// A send or receive over a stream socket. The hub's mutex guards all but `info`.
class StreamOp final : public PendingOp {
 public:
  StreamOp(const OpInfo& op_info, std::shared_ptr<StreamState> op_state);
  ~StreamOp() override;

  const std::shared_ptr<StreamState> state;
  std::span<std::byte> memory;  // of a receive
  bool is_done = false;
  std::size_t num_moved = 0;  // bytes, once it is done
};

/// What is under way on one connected stream socket. A message is a header of 16 bytes, magic u32 | tag u32 | bytes u64, all
/// little-endian, and its bytes; a goodbye is a header alone.
///
/// The mutex of the hub guards everything but failure(). Nothing here waits.
class StreamState {
 public:
  /// `socket` is connected. `mutex` is the hub's.
  StreamState(FileDescriptor socket, Rank peer, std::mutex& mutex);
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  Rank peer() const { return peer_; }
  int socket() const { return socket_.get(); }
  std::mutex& mutex() const { return mutex_; }
  FailureLatch& failure() { return failure_; }
  const FailureLatch& failure() const { return failure_; }
  LinkEnd end() const { return end_; }

  void post_send(StreamOp& op, std::span<const std::byte> data);
  void post_receive(StreamOp& op);
  /// `op` is about to go.
  void forget(StreamOp& op);

  /// Moves what can be moved at once. An error of the socket, its end, or a goodbye ends the link.
  void read_some();
  void write_some();
  /// What poll() is asked for while somebody waits, and while nobody does: then for what would not fit the socket's buffers.
  short wanted_events() const;
  short background_events() const;
  /// Ends the link; the first reason stays.
  void break_off(LinkEnd end, ErrorCode code, const std::string& reason);
  /// The peer sends no more: it is told again and again, so nobody listens for it from here on. Takes what has come.
  void note_hang_up();
  void say_goodbye();

  bool is_watched = true;     // no hang-up was seen yet
  bool end_was_told = false;  // or nobody wants to know

 private:
  static constexpr std::size_t kHeaderBytes = 16;
  static constexpr std::size_t kInboxBytes = std::size_t{16} << 10;
  static constexpr std::size_t kBackgroundBytes = std::size_t{64} << 10;  // messages from here on move while nobody waits

  struct Outgoing {
    std::array<std::byte, kHeaderBytes> header{};
    std::span<const std::byte> data;
    std::vector<std::byte> kept;  // data, if its owner has gone
    StreamOp* op = nullptr;
    std::size_t num_sent = 0;
  };
  struct Incoming {
    enum class Place { kNone, kReceive, kHolding, kSink };
    bool is_open = false;  // its header has come
    bool is_blocked = false;
    int tag = 0;
    std::size_t num_bytes = 0, num_received = 0;
    Place place = Place::kNone;
    StreamOp* op = nullptr;          // of kReceive
    std::vector<std::byte> holding;  // of kHolding: nobody has asked for it
  };

  void queue(int tag, std::span<const std::byte> data, StreamOp* op);
  bool take_header();
  bool open_message();
  bool move_payload();
  void close_message();
  /// Receives into `place`; 0 if nothing has come or the link has ended.
  std::size_t receive(std::span<std::byte> place);
  std::size_t take_from_inbox(std::span<std::byte> place);
  std::span<std::byte> place_of_rest();
  void deliver(StreamOp& op, std::size_t num_bytes);
  bool expects_large(const StreamOp& receive) const;

  const FileDescriptor socket_;
  const Rank peer_;
  std::mutex& mutex_;
  FailureLatch failure_;
  LinkEnd end_ = LinkEnd::kBroken;
  std::deque<Outgoing> outbox_;
  std::vector<std::byte> inbox_;  // read ahead: [inbox_begin_, inbox_end_)
  std::size_t inbox_begin_ = 0, inbox_end_ = 0;
  Incoming incoming_;
  std::map<int, std::deque<StreamOp*>> posted_;                   // receives, by tag
  std::map<int, std::deque<std::vector<std::byte>>> unexpected_;  // whole messages that nobody has asked for, by tag
  std::size_t unexpected_bytes_ = 0;
  std::map<int, bool> was_large_;  // by tag: the last message received
  std::vector<std::byte> sink_;    // for messages that are dropped
};

}  // namespace ferry
