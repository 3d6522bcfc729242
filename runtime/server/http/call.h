#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/server/http/message.h"
#include "runtime/server/http/reply.h"

namespace ferry {

/// How the answer to a call may look.
struct HttpCallForm {
  bool is_chunked = true;                        // else the body of a stream ends with the connection
  bool has_body = true;                          // false: of HEAD, whose streams are a head
  int64_t max_waiting_bytes = int64_t{1} << 20;  // ServerLimits::http_stream_bytes
};

/// One request from its handler's call to its answer's last byte: where handles leave what is to be sent, from any thread, and
/// the connection takes it. A test may take it, too.
class HttpCall {
 public:
  /// `wake` has the connection call take(), soon. It is called with a lock held, so it must only post; it may own the
  /// connection, since it is destroyed when the call ends.
  HttpCall(HttpCallForm form, std::function<void()> wake) : form_(form), wake_(std::move(wake)) {}
  HttpCall(const HttpCall&) = delete;
  HttpCall& operator=(const HttpCall&) = delete;

  // What the handles do; see there.
  void set_on_closed(HttpEndCallback on_closed);
  void answer(HttpResponse response);
  void begin_stream(HttpStreamHead head, HttpEndCallback on_closed);
  bool write(const std::string& piece);
  void finish();
  bool answer_instead(HttpResponse response);
  int64_t waiting_bytes() const;
  /// The stream's handle has gone.
  void drop_stream();

  /// What there is to do, beside sending bytes.
  struct News {
    bool is_watched = false;               // somebody wants to know if the client goes
    double keep_alive_s = 0;               // of the stream, while it goes on
    std::optional<HttpEnd> cut;            // close the connection; nothing else counts
    std::optional<HttpResponse> response;  // the answer, whole
    std::optional<HttpStreamHead> head;    // comes before the bytes
    bool is_last = false;                  // the stream ends with these bytes
  };

  // The rest is the connection's.

  /// Moves what waits into `bytes`, in chunks if the call has them; what was in there has been sent.
  News take(std::string& bytes);
  /// Adds a comment of server-sent events to a stream that has nothing to send.
  void keep_alive();
  /// Of a stream of events: whether a comment would stand between two of them.
  bool is_between_events() const;
  /// The call has ended: whoever wants to know hears, once. Nothing is taken any more.
  void end(HttpEnd end);

 private:
  enum class State {
    kOpen,       // neither answered nor a stream
    kStreaming,  // pieces may come
    kComplete,   // all is said
    kEnded,
  };

  void append(const std::string& piece);
  void wake();

  const HttpCallForm form_;
  mutable std::mutex mutex_;
  // Guarded by the mutex:
  std::function<void()> wake_;
  HttpEndCallback on_closed_;
  State state_ = State::kOpen;
  HttpEnd ended_as_{};  // in kEnded
  bool is_awake_ = false;
  News news_;
  bool has_begun_ = false;     // of a stream: the head may go
  std::string waiting_;        // in chunks
  std::size_t in_flight_ = 0;  // bytes taken last
  std::size_t largest_ = 0;    // piece of the stream so far, bytes
  std::string tail_;           // of the stream so far, its last two bytes
};

}  // namespace ferry
