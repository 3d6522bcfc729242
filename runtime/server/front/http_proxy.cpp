#include "runtime/server/front/http_proxy.h"

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/server/anthropic/message_error.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/http/http_client.h"
#include "runtime/server/http/json_limits.h"
#include "runtime/server/openai/openai_error.h"

namespace ferry {
namespace {

constexpr int64_t kWholeBytesMax = 1 << 20;  // of an answer that is sent when all of it has come; longer ones are streams

/// About a connection (RFC 9110 §7.6.1), or about what this server's gate has judged.
constexpr std::array kDroppedOfRequests = {
    "host",   "connection",     "content-length", "transfer-encoding", "keep-alive",    "te", "trailer", "upgrade", "expect",
    "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest",    "sec-fetch-user"};
constexpr std::array kDroppedOfAnswers = {"connection", "content-length", "transfer-encoding", "keep-alive",
                                          "trailer",    "upgrade",        "content-type",      "te"};

bool is_hop(std::string_view name) { return name.starts_with("proxy-") && name != "proxy-status"; }

template <std::size_t N>
HttpHeaders without(const HttpHeaders& headers, const std::array<const char*, N>& dropped) {
  HttpHeaders kept;
  for (const auto& header : headers) {
    if (is_hop(header.first) || std::find(dropped.begin(), dropped.end(), header.first) != dropped.end()) continue;
    kept.push_back(header);
  }
  return kept;
}

std::string content_type_of(const HttpHeaders& headers) {
  const auto found =
      std::find_if(headers.begin(), headers.end(), [](const auto& each) { return each.first == "content-type"; });
  return found == headers.end() ? "" : found->second;
}

api::ApiError unavailable(const std::string& message) { return api::ApiError(Error(ErrorCode::kUnavailable, message)); }

/// Whether what a route is asked has a prompt that the model will compute.
enum class RouteKind { kPrompt, kOther };

struct ProxiedRoute {
  RouteKind kind;
  api::ErrorForm errors;
};

/// One request between its client and the coordinators that are asked. Until its first question is under way it is one
/// thread's, then the HTTP client's, but for what is guarded.
class ProxiedCall final : public ExchangeHearer, public std::enable_shared_from_this<ProxiedCall> {
 public:
  ProxiedCall(HttpProxyContext& context, HttpRequest request, HttpReply reply, const ProxiedRoute& route)
      : context_(context),
        route_(route),
        request_(std::move(request)),
        body_(request_.has_body ? std::make_shared<const std::string>(std::move(request_.body)) : nullptr),
        reply_(std::move(reply)) {}

  void start() {
    reply_->set_on_closed([self = weak_from_this()](HttpEnd end) {
      if (const auto call = self.lock(); call && end != HttpEnd::kAnswered) call->leave();
    });
    if (context_.mark.is_on(request_.headers)) return answer(api::ApiError(kLoopDetected, "LoopDetectedError", kLoopMessage));
    const auto read = [self = shared_from_this()] { self->begin(); };
    if (!context_.readers.try_run(read)) answer(unavailable("too many requests wait to be read; try again"));
  }

  void on_head(HttpAnswerHead head) override {
    constexpr int kUnavailable = 503;
    is_passed_on_ = (head.status == kUnavailable || head.status == kLoopDetected) && may_try_another();
    if (is_passed_on_) return exchange()->cancel();
    const bool is_stream = content_type_of(head.headers).starts_with("text/event-stream");
    is_whole_ = !is_stream && head.length && *head.length <= kWholeBytesMax;
    head_ = std::move(head);
  }

  void on_piece(std::string_view piece) override {
    if (is_passed_on_) return;
    if (is_whole_) {
      whole_.append(piece);
      return;
    }
    begin_stream();
    tail_.append(piece.substr(piece.size() - std::min<std::size_t>(piece.size(), 2)));
    tail_.erase(0, tail_.size() - std::min<std::size_t>(tail_.size(), 2));
    stream_->write(std::string(piece));
  }

  bool is_full() override { return stream_ && stream_->waiting_bytes() > context_.limits.http_stream_bytes / 2; }

  void on_end(ExchangeEnd end, const std::string& reason) override {
    const std::size_t coordinator = open_->coordinator();
    open_.reset();
    set_exchange(nullptr);
    if (has_left()) return drop();
    if (end == ExchangeEnd::kWhole) return finish();
    if (end == ExchangeEnd::kUnreachable) context_.pool.mark_down(coordinator, reason);
    if (end == ExchangeEnd::kBroken) context_.pool.count_broken(coordinator);
    if (!stream_ && may_try_another()) return try_another();
    const bool was_given_up = end == ExchangeEnd::kCancelled;
    fail("coordinator " + context_.pool.address(coordinator).http +
         " was lost: " + (was_given_up ? "it does not answer any more" : reason));
  }

 private:
  /// On a thread where reading may take its time.
  void begin() {
    try {
      const std::string_view body = body_ && has_prompt() ? std::string_view(*body_) : std::string_view();
      traits_ = http_call_traits(request_, body, model_json_limits(context_.limits));
      ask();
    } catch (const std::exception&) {  // no memory: the reply says what it can when it goes
      drop();
    }
  }

  /// The client has gone.
  void leave() {
    std::shared_ptr<HttpExchange> exchange;
    {
      const std::scoped_lock lock(mutex_);
      has_left_ = true;
      exchange = exchange_;
    }
    if (exchange) exchange->cancel();
  }

  void ask() {
    open_ = context_.pool.open({.traits = traits_,
                                .port = FrontPort::kHttp,
                                .has_prompt = has_prompt(),
                                .tried = tried_,
                                .on_lost = [self = weak_from_this()] {
                                  if (const auto call = self.lock()) call->give_up();
                                }});
    if (!open_) return answer(unavailable("no coordinator serves"));
    tried_.push_back(open_->coordinator());
    HttpQuestion question{.address = context_.pool.address(open_->coordinator()).http,
                          .method = request_.method == "HEAD" ? "GET" : request_.method,
                          .path = request_.path,
                          .headers = without(request_.headers, kDroppedOfRequests),
                          .body = body_,
                          .write_s = context_.limits.http_write_s};
    question.headers.emplace_back(FrontMark::kName, context_.mark.value());
    const std::scoped_lock lock(mutex_);  // what is told of the exchange waits until it is known here
    exchange_ = context_.client.start(std::move(question), shared_from_this());
    if (has_left_) exchange_->cancel();
  }

  bool has_prompt() const { return route_.kind == RouteKind::kPrompt; }

  bool may_try_another() const {
    return tried_.size() < static_cast<std::size_t>(kTriesMax) && context_.pool.has_another(FrontPort::kHttp, tried_);
  }

  void try_another() {
    head_ = {};
    whole_.clear();
    is_passed_on_ = is_whole_ = false;
    ask();
  }

  /// The coordinator says nothing any more: another one may.
  void give_up() {
    if (const auto under_way = exchange()) under_way->cancel();
  }

  /// From here on nobody else is asked.
  void begin_stream() {
    if (stream_) return;
    body_.reset();
    stream_ = reply_->stream({.status = head_.status,
                              .content_type = content_type_of(head_.headers),
                              .headers = without(head_.headers, kDroppedOfAnswers)});
  }

  void finish() {
    if (is_whole_) {
      reply_->send({.status = head_.status,
                    .body = std::move(whole_),
                    .headers = without(head_.headers, kDroppedOfAnswers),
                    .content_type = content_type_of(head_.headers)});
      return drop();
    }
    begin_stream();
    stream_->finish();
    drop();
  }

  /// Ends the call with an error that its API has a form for, where there is room for one.
  void fail(const std::string& message) {
    if (!stream_) return answer(unavailable(message));
    const bool is_events = content_type_of(head_.headers).starts_with("text/event-stream");
    if (is_events) {
      stream_->write((tail_ == "\n\n" ? "" : "\n\n") + route_.errors.stream_end(unavailable(message)));
      stream_->finish();
    }
    drop();  // what is no events is cut, so that nobody takes it for whole
  }

  void answer(const api::ApiError& error) {
    reply_->send(route_.errors.response(error));
    drop();
  }

  void drop() {
    stream_.reset();
    reply_.reset();
  }

  std::shared_ptr<HttpExchange> exchange() const {
    const std::scoped_lock lock(mutex_);
    return exchange_;
  }
  void set_exchange(std::shared_ptr<HttpExchange> exchange) {
    const std::scoped_lock lock(mutex_);
    exchange_ = std::move(exchange);
  }
  bool has_left() const {
    const std::scoped_lock lock(mutex_);
    return has_left_;
  }

  HttpProxyContext& context_;
  const ProxiedRoute route_;
  HttpRequest request_;  // without its body
  std::shared_ptr<const std::string> body_;
  std::optional<HttpReply> reply_;
  std::shared_ptr<HttpStream> stream_;  // once a byte of a streamed answer has come
  CallTraits traits_;
  std::vector<std::size_t> tried_;
  std::unique_ptr<CoordinatorPool::OpenCall> open_;
  HttpAnswerHead head_;
  std::string whole_, tail_;  // of the answer: all of it so far, or the last two bytes
  bool is_whole_ = false;     // it is sent when all of it has come
  bool is_passed_on_ = false;
  mutable std::mutex mutex_;
  // Guarded by the mutex:
  std::shared_ptr<HttpExchange> exchange_;
  bool has_left_ = false;
};

}  // namespace

void add_proxy_routes(HttpRouter& router, HttpProxyContext& context) {
  const auto add = [&](const char* method, const std::string& path, RouteKind kind, const api::ErrorForm& errors) {
    const auto handler = [&context, route = ProxiedRoute{kind, errors}](HttpRequest request, HttpReply reply) {
      std::make_shared<ProxiedCall>(context, std::move(request), std::move(reply), route)->start();
    };
    router.add(method, path, {.handler = handler, .blocking = {}, .reword = errors.reword});
  };
  const api::ErrorForm openai = api::openai::openai_errors(), anthropic = api::anthropic::message_errors();
  for (const std::string prefix : {"/v1", ""}) {
    for (const char* path : {"/completions", "/chat/completions", "/responses"})
      add("POST", prefix + path, RouteKind::kPrompt, openai);
    add("POST", prefix + "/messages", RouteKind::kPrompt, anthropic);
    add("POST", prefix + "/messages/count_tokens", RouteKind::kOther, anthropic);
    for (const char* path : {"/models", "/models/**", "/responses/*"}) add("GET", prefix + path, RouteKind::kOther, openai);
  }
  for (const char* path : {"/tokenize", "/detokenize", "/apply-template"}) add("POST", path, RouteKind::kOther, openai);
}

}  // namespace ferry
