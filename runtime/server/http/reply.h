#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/server/http/message.h"

// How handlers answer: HttpReply with one HttpResponse, or with an HttpStream whose body comes piece by piece. Both are handles
// of one call and cost no thread; any thread may use them, and none of their methods waits for the client.

namespace ferry {

class HttpCall;

/// How a call has ended.
enum class HttpEnd {
  kAnswered,  // all bytes of the answer are handed to the system
  kGone,      // the client has gone, the server stops, or the handler dropped the call
  kTooSlow,   // the client took too little for too long: ServerLimits::http_stream_bytes, ::http_write_s
};

/// Hears once how the call has ended. Called on the I/O thread, where it must not block or throw; if the call had ended before
/// this was set, on the thread that sets it. It may use the call's handles and end requests.
using HttpEndCallback = std::function<void(HttpEnd end)>;

/// What a stream begins with. It leaves with the first piece, or what else comes first.
struct HttpStreamHead {
  int status = 200;
  std::string content_type = "text/event-stream; charset=utf-8";
  HttpHeaders headers{};
  double keep_alive_s = 0;  // of silence, after each a comment of server-sent events leaves, ": keep-alive\n\n"; 0: none
};

/// An answer whose end is not known yet: chunks over HTTP/1.1; over HTTP/1.0, and so that its end can be told there, the
/// connection's end. Dropped without finish() the connection is cut when what was written has left, so that no client takes the
/// part for the whole. It may outlive the server.
class HttpStream {
 public:
  struct Callbacks {
    HttpEndCallback on_closed{};  // may be empty
  };

  /// Begins an answer to `call`, which has none.
  HttpStream(std::shared_ptr<HttpCall> call, HttpStreamHead head, Callbacks callbacks);
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  /// Sends one chunk, together with those that wait when the socket takes more; an empty piece sends the head alone. False once
  /// the call has ended or the stream was finished; also if too much waited already, which ends the call (kTooSlow).
  bool write(const std::string& piece);
  /// Nothing more comes. Without any piece the body is empty.
  void finish();
  /// Answers with `response` in place of this stream, which is over then, if nothing of it has left: an error that comes before
  /// the first piece still has its status. False, and nothing is done, if the head has left or the call has ended.
  bool answer_instead(HttpResponse response);
  /// Of the body, that the system has not taken yet.
  int64_t waiting_bytes() const;

 private:
  const std::shared_ptr<HttpCall> call_;
};

/// The right to answer one request, once. Dropped without an answer it sends status 500, so that no client waits for nothing.
/// It may outlive the server.
class HttpReply {
 public:
  explicit HttpReply(std::shared_ptr<HttpCall> call) : call_(std::move(call)) {}
  ~HttpReply();
  HttpReply(HttpReply&& other) noexcept : call_(std::move(other.call_)) {}
  HttpReply& operator=(HttpReply&&) = delete;

  /// Has the connection watched: `on_closed` hears if the client goes before it has its answer. One that only sends nothing
  /// more has not gone, where the two can be told apart (README.md of runtime/server). At most once.
  void set_on_closed(HttpEndCallback on_closed);

  /// Both use the right up. Callbacks of a stream take the place of set_on_closed's unless they are empty; the connection is
  /// watched in any case.
  void send(HttpResponse response);
  std::shared_ptr<HttpStream> stream(HttpStreamHead head, HttpStream::Callbacks callbacks = {});

 private:
  std::shared_ptr<HttpCall> call_;  // null: answered, or moved on
};

}  // namespace ferry
