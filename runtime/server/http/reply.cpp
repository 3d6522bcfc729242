#include "runtime/server/http/reply.h"

#include <exception>

#include "runtime/server/http/call.h"

namespace ferry {

HttpStream::HttpStream(std::shared_ptr<HttpCall> call, HttpStreamHead head, Callbacks callbacks) : call_(std::move(call)) {
  call_->begin_stream(std::move(head), std::move(callbacks.on_closed));
}
HttpStream::~HttpStream() {
  try {
    call_->drop_stream();
  } catch (const std::exception&) {  // no memory to say so: the client waits until the server stops
  }
}
bool HttpStream::write(const std::string& piece) { return call_->write(piece); }
void HttpStream::finish() { call_->finish(); }
bool HttpStream::answer_instead(HttpResponse response) { return call_->answer_instead(std::move(response)); }
int64_t HttpStream::waiting_bytes() const { return call_->waiting_bytes(); }

HttpReply::~HttpReply() {
  if (call_ == nullptr) return;
  try {
    send(http_error(500, "the request was dropped"));
  } catch (const std::exception&) {  // without memory for an answer the client waits until the server stops
  }
}

void HttpReply::set_on_closed(HttpEndCallback on_closed) { call_->set_on_closed(std::move(on_closed)); }

void HttpReply::send(HttpResponse response) {
  if (const auto once = std::exchange(call_, nullptr)) once->answer(std::move(response));
}

std::shared_ptr<HttpStream> HttpReply::stream(HttpStreamHead head, HttpStream::Callbacks callbacks) {
  return std::make_shared<HttpStream>(std::exchange(call_, nullptr), std::move(head), std::move(callbacks));
}

}  // namespace ferry
