#include "comm/stream/stream_state.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr uint32_t kStreamMagic = 0x314b4c46;  // "FLK1"
constexpr uint32_t kGoodbyeTag = 0xffffffff;

struct MessageHeader {
  uint32_t magic = kStreamMagic;
  uint32_t tag = 0;
  uint64_t bytes = 0;
};

constexpr std::size_t kUnreadBytes = std::size_t{8} << 20;  // more than a socket holds: Linux's tcp_rmem ends at 6 MiB

/// What a message that nobody has asked for counts, so that empty ones have a bound, too.
std::size_t held_bytes(std::size_t message_bytes) { return message_bytes + 64; }

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

StreamOp::StreamOp(const OpInfo& op_info, std::shared_ptr<StreamState> op_state)
    : PendingOp(op_info), state(std::move(op_state)) {}

StreamOp::~StreamOp() {
  const std::scoped_lock lock(state->mutex());
  state->forget(*this);
}

StreamState::StreamState(FileDescriptor socket, Rank peer, std::mutex& mutex)
    : socket_(std::move(socket)), peer_(peer), mutex_(mutex), inbox_(kInboxBytes) {}

void StreamState::queue(int tag, std::span<const std::byte> data, StreamOp* op) {
  const MessageHeader header{.tag = static_cast<uint32_t>(tag), .bytes = data.size()};
  static_assert(sizeof(header) == kHeaderBytes);
  Outgoing& message = outbox_.emplace_back();
  std::memcpy(message.header.data(), &header, kHeaderBytes);
  message.data = data;
  message.op = op;
}

void StreamState::post_send(StreamOp& op, std::span<const std::byte> data) {
  queue(op.info.tag, data, &op);
  if (outbox_.size() == 1) write_some();
}

void StreamState::post_receive(StreamOp& op) {
  const auto waiting = unexpected_.find(op.info.tag);
  if (waiting != unexpected_.end() && !waiting->second.empty() && posted_[op.info.tag].empty()) {
    const std::vector<std::byte> bytes = std::move(waiting->second.front());
    waiting->second.pop_front();
    unexpected_bytes_ -= held_bytes(bytes.size());
    incoming_.is_blocked = false;  // there may be room now
    if (bytes.size() <= op.memory.size()) std::ranges::copy(bytes, op.memory.begin());
    deliver(op, bytes.size());
    return;
  }
  failure_.throw_if_set();
  posted_[op.info.tag].push_back(&op);
  incoming_.is_blocked = false;
}

void StreamState::forget(StreamOp& op) {
  if (op.is_done) return;
  if (op.info.kind == OpInfo::Kind::kRecv) {
    std::erase(posted_[op.info.tag], &op);
    if (incoming_.op != &op) return;
    incoming_.op = nullptr;
    incoming_.place = Incoming::Place::kSink;
    return;
  }
  const auto message = std::ranges::find(outbox_, &op, &Outgoing::op);
  if (message == outbox_.end()) return;
  if (message->num_sent == 0) {
    outbox_.erase(message);
    return;
  }
  message->op = nullptr;
  message->kept.assign(message->data.begin(), message->data.end());
  message->data = message->kept;
}

void StreamState::write_some() {
  while (!outbox_.empty() && !failure_.is_set()) {
    Outgoing& message = outbox_.front();
    const std::size_t header_sent = std::min(message.num_sent, kHeaderBytes);
    const std::size_t data_sent = message.num_sent - header_sent;
    std::array<iovec, 2> parts{iovec{message.header.data() + header_sent, kHeaderBytes - header_sent},
                               iovec{const_cast<std::byte*>(message.data.data()) + data_sent, message.data.size() - data_sent}};
    msghdr envelope{};
    envelope.msg_iov = parts.data();
    envelope.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket_.get(), &envelope, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && would_wait(errno)) return;
    if (sent < 0) {
      // What the peer said before it went is still to be read, a goodbye among it.
      const std::string reason = std::strerror(errno);
      read_some();
      break_off(LinkEnd::kBroken, ErrorCode::kUnavailable, "its connection broke: " + reason);
      return;
    }
    message.num_sent += static_cast<std::size_t>(sent);
    if (message.num_sent < kHeaderBytes + message.data.size()) continue;
    if (message.op != nullptr) {
      message.op->num_moved = message.data.size();
      message.op->is_done = true;
    }
    outbox_.pop_front();
  }
}

std::size_t StreamState::receive(std::span<std::byte> place) {
  while (true) {
    const ssize_t bytes = recv(socket_.get(), place.data(), place.size(), MSG_DONTWAIT);
    if (bytes > 0) return static_cast<std::size_t>(bytes);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && would_wait(errno)) return 0;
    const std::string reason = bytes == 0 ? "closed without a goodbye" : std::strerror(errno);
    break_off(LinkEnd::kBroken, ErrorCode::kUnavailable, "its connection broke: " + reason);
    return 0;
  }
}

void StreamState::read_some() {
  while (!failure_.is_set() && !incoming_.is_blocked) {
    if (!incoming_.is_open && !take_header()) return;
    if (!open_message() || !move_payload()) return;
    close_message();
  }
}

/// Whether the header of a message is there.
bool StreamState::take_header() {
  while (inbox_end_ - inbox_begin_ < kHeaderBytes) {
    if (inbox_begin_ > 0) std::memmove(inbox_.data(), inbox_.data() + inbox_begin_, inbox_end_ - inbox_begin_);
    inbox_end_ -= std::exchange(inbox_begin_, 0);
    const std::size_t bytes = receive(std::span(inbox_).subspan(inbox_end_));
    if (bytes == 0) return false;
    inbox_end_ += bytes;
  }
  MessageHeader header;
  std::memcpy(&header, inbox_.data() + inbox_begin_, kHeaderBytes);
  inbox_begin_ += kHeaderBytes;
  if (header.magic == kStreamMagic && header.tag == kGoodbyeTag && header.bytes == 0) {
    break_off(LinkEnd::kLeft, ErrorCode::kUnavailable, "left");
    return false;
  }
  if (header.magic != kStreamMagic || header.tag >= static_cast<uint32_t>(Link::kNumTags)) {
    break_off(LinkEnd::kBroken, ErrorCode::kInternal, "sent what is no message");
    return false;
  }
  incoming_ = {.is_open = true, .tag = static_cast<int>(header.tag), .num_bytes = header.bytes, .holding = {}};
  return true;
}

/// Finds a place for the message that has begun, if it has none. False: there is none yet, or it does not fit and the link has
/// ended.
bool StreamState::open_message() {
  if (incoming_.place != Incoming::Place::kNone) return true;
  if (auto& receives = posted_[incoming_.tag]; !receives.empty()) {
    StreamOp& op = *receives.front();
    const bool fits = op.info.fit == Fit::kExact ? incoming_.num_bytes == op.info.bytes : incoming_.num_bytes <= op.info.bytes;
    if (!fits) {
      break_off(LinkEnd::kBroken, ErrorCode::kInternal,
                "sent " + std::to_string(incoming_.num_bytes) + " bytes for the " + describe(op.info));
      return false;
    }
    receives.pop_front();
    incoming_.place = Incoming::Place::kReceive;
    incoming_.op = &op;
    return true;
  }
  incoming_.is_blocked = incoming_.num_bytes > Link::kMaxUnexpectedBytes ||
                         held_bytes(incoming_.num_bytes) > Link::kMaxUnexpectedBytes - unexpected_bytes_;
  if (incoming_.is_blocked) return false;
  unexpected_bytes_ += held_bytes(incoming_.num_bytes);
  incoming_.place = Incoming::Place::kHolding;
  incoming_.holding.resize(incoming_.num_bytes);
  return true;
}

std::span<std::byte> StreamState::place_of_rest() {
  const std::size_t rest = incoming_.num_bytes - incoming_.num_received;
  if (incoming_.place == Incoming::Place::kSink) {
    sink_.resize(kBackgroundBytes);
    return std::span(sink_).first(std::min(rest, sink_.size()));
  }
  const bool is_held = incoming_.place == Incoming::Place::kHolding;
  const std::span<std::byte> whole = is_held ? std::span(incoming_.holding) : incoming_.op->memory;
  return whole.subspan(incoming_.num_received, rest);
}

std::size_t StreamState::take_from_inbox(std::span<std::byte> place) {
  const std::size_t bytes = std::min(place.size(), inbox_end_ - inbox_begin_);
  std::copy_n(inbox_.begin() + static_cast<std::ptrdiff_t>(inbox_begin_), bytes, place.begin());
  inbox_begin_ += bytes;
  return bytes;
}

/// Whether all of the message has come.
bool StreamState::move_payload() {
  while (incoming_.num_received < incoming_.num_bytes) {
    const std::span<std::byte> place = place_of_rest();
    std::size_t bytes = take_from_inbox(place);
    if (bytes == 0) bytes = receive(place);
    if (bytes == 0) return false;
    incoming_.num_received += bytes;
  }
  return true;
}

void StreamState::close_message() {
  Incoming message = std::exchange(incoming_, {});
  was_large_[message.tag] = message.num_bytes >= kBackgroundBytes;
  if (message.place == Incoming::Place::kReceive) deliver(*message.op, message.num_bytes);
  if (message.place != Incoming::Place::kHolding) return;
  auto& receives = posted_[message.tag];
  if (receives.empty()) {
    unexpected_[message.tag].push_back(std::move(message.holding));
    return;
  }
  // It was asked for while it came.
  StreamOp& op = *receives.front();
  receives.pop_front();
  unexpected_bytes_ -= held_bytes(message.num_bytes);
  if (message.num_bytes <= op.memory.size()) std::ranges::copy(message.holding, op.memory.begin());
  deliver(op, message.num_bytes);
}

void StreamState::deliver(StreamOp& op, std::size_t num_bytes) {
  const bool fits = op.info.fit == Fit::kExact ? num_bytes == op.info.bytes : num_bytes <= op.info.bytes;
  if (!fits) {
    break_off(LinkEnd::kBroken, ErrorCode::kInternal,
              "sent " + std::to_string(num_bytes) + " bytes for the " + describe(op.info));
    return;
  }
  op.num_moved = num_bytes;
  op.is_done = true;
}

short StreamState::wanted_events() const {
  if (failure_.is_set()) return 0;
  return static_cast<short>((incoming_.is_blocked ? 0 : POLLIN) | (outbox_.empty() ? 0 : POLLOUT));
}

/// Of a receive that takes any size the last message of its tag tells.
bool StreamState::expects_large(const StreamOp& receive) const {
  if (receive.info.bytes < kBackgroundBytes) return false;
  const auto last = was_large_.find(receive.info.tag);
  return receive.info.fit == Fit::kExact || (last != was_large_.end() && last->second);
}

short StreamState::background_events() const {
  if (failure_.is_set()) return 0;
  const auto expects = [this](const auto& posted) {
    return std::ranges::any_of(posted.second, [this](const StreamOp* op) { return expects_large(*op); });
  };
  const bool reads = incoming_.num_bytes >= kBackgroundBytes || std::ranges::any_of(posted_, expects);
  return static_cast<short>((reads && !incoming_.is_blocked ? POLLIN : 0) | (outbox_.empty() ? 0 : POLLOUT));
}

void StreamState::break_off(LinkEnd end, ErrorCode code, const std::string& reason) {
  if (!failure_.set(code, peer_, reason)) return;
  end_ = end;
  shutdown(socket_.get(), SHUT_RDWR);  // the peer need not wait for a deadline to learn of it
}

void StreamState::note_hang_up() {
  is_watched = false;
  write_some();
  read_some();
  if (incoming_.is_blocked) {
    break_off(LinkEnd::kBroken, ErrorCode::kUnavailable, "its connection ended behind messages that nobody has asked for");
  }
}

void StreamState::say_goodbye() {
  if (failure_.is_set()) return;
  queue(-1, {}, nullptr);
  write_some();
  // Closed with bytes unread, TCP would drop what is under way to the peer. One that never stops sending is not heard out.
  sink_.resize(kBackgroundBytes);
  for (std::size_t num_unread = 0; num_unread < kUnreadBytes;) {
    const std::size_t bytes = receive(sink_);
    if (bytes == 0) break;
    num_unread += bytes;
  }
  break_off(LinkEnd::kLeft, ErrorCode::kCancelled, "the link was closed here");
}

}  // namespace ferry
