#include "runtime/server/http/call.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace ferry {
namespace {

constexpr const char* kKeepAlive = ": keep-alive\n\n";
constexpr std::size_t kTailBytes = 2;  // that end an event
constexpr const char* kLastChunk = "0\r\n\r\n";

}  // namespace

void HttpCall::wake() {
  if (is_awake_ || !wake_) return;
  wake_();
  is_awake_ = true;
}

void HttpCall::set_on_closed(HttpEndCallback on_closed) {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::kEnded) {
      on_closed_.swap(on_closed);
      news_.is_watched = true;
      return wake();
    }
  }
  if (on_closed) on_closed(ended_as_);  // kEnded is for good
}

void HttpCall::answer(HttpResponse response) {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::kOpen) return;
  news_.response = std::move(response);
  state_ = State::kComplete;
  wake();
}

void HttpCall::begin_stream(HttpStreamHead head, HttpEndCallback on_closed) {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ == State::kOpen) {
      news_.keep_alive_s = head.keep_alive_s;
      news_.head = std::move(head);
      state_ = State::kStreaming;
      news_.is_watched = true;
      wake();
    }
  }
  if (on_closed) set_on_closed(std::move(on_closed));
}

/// The size in front is hexadecimal (RFC 9112 §7.1).
void HttpCall::append(const std::string& piece) {
  has_begun_ = true;
  if (piece.empty() || !form_.has_body) return;
  tail_.append(piece, piece.size() - std::min(piece.size(), kTailBytes));
  tail_.erase(0, tail_.size() - std::min(tail_.size(), kTailBytes));
  if (!form_.is_chunked) {
    waiting_ += piece;
    return;
  }
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
  waiting_.append(size).append(piece).append("\r\n");
}

bool HttpCall::write(const std::string& piece) {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::kStreaming) return false;
  const std::size_t bound = static_cast<std::size_t>(form_.max_waiting_bytes) + largest_;  // one large piece ends no stream
  if (waiting_.size() + in_flight_ > bound) {
    news_.cut = HttpEnd::kTooSlow;
    state_ = State::kComplete;
  } else {
    append(piece);
    largest_ = std::max(largest_, piece.size());
  }
  wake();
  return state_ == State::kStreaming;
}

void HttpCall::finish() {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::kStreaming) return;
  has_begun_ = true;
  if (form_.is_chunked && form_.has_body) waiting_ += kLastChunk;
  news_.is_last = true;
  state_ = State::kComplete;
  wake();
}

bool HttpCall::answer_instead(HttpResponse response) {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::kStreaming || has_begun_) return false;
  news_.head.reset();
  news_.response = std::move(response);
  state_ = State::kComplete;
  wake();
  return true;
}

int64_t HttpCall::waiting_bytes() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int64_t>(waiting_.size() + in_flight_);
}

void HttpCall::drop_stream() {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::kStreaming) return;
  news_.cut = HttpEnd::kGone;
  state_ = State::kComplete;
  wake();
}

HttpCall::News HttpCall::take(std::string& bytes) {
  bytes.clear();
  const std::scoped_lock lock(mutex_);
  is_awake_ = false;
  bytes.swap(waiting_);
  in_flight_ = bytes.size();
  News news{.is_watched = news_.is_watched,
            .keep_alive_s = state_ == State::kStreaming ? news_.keep_alive_s : 0,
            .cut = news_.cut,
            .response = std::exchange(news_.response, std::nullopt),
            .head = {},
            .is_last = news_.is_last};
  if (has_begun_) news.head = std::exchange(news_.head, std::nullopt);
  return news;
}

void HttpCall::keep_alive() {
  const std::scoped_lock lock(mutex_);
  if (state_ == State::kStreaming && waiting_.empty()) append(kKeepAlive);
}

bool HttpCall::is_between_events() const {
  const std::scoped_lock lock(mutex_);
  return tail_.empty() || tail_ == "\n\n";
}

void HttpCall::end(HttpEnd end) {
  std::function<void()> wake;  // may own the connection, which may own this
  HttpEndCallback on_closed;
  {
    const std::scoped_lock lock(mutex_);
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    ended_as_ = end;
    waiting_.clear();
    in_flight_ = 0;
    wake.swap(wake_);
    on_closed.swap(on_closed_);
  }
  if (on_closed) on_closed(end);
}

}  // namespace ferry
