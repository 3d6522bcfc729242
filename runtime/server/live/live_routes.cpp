#include "runtime/server/live/live_routes.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/server/http/router.h"
#include "runtime/server/live/live_json.h"
#include "runtime/server/live/page_source.h"

namespace ferry {
namespace {

/// A page of another site may neither read this one nor put it into a frame; it loads nothing but the status.
const HttpHeaders kPageHeaders = {{"Content-Security-Policy",
                                   "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
                                   "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                                  {"Cache-Control", "no-cache"},
                                  {"Referrer-Policy", "no-referrer"},
                                  {"X-Content-Type-Options", "nosniff"}};

std::string filled(std::string page, std::string_view mark, std::string_view content) {
  const std::size_t at = page.find(mark);
  FERRY_CHECK(at != std::string::npos) << " the page has no " << mark;
  return page.replace(at, mark.size(), content);
}

HttpResponse page_answer() {
  std::string page = filled(std::string(live_page::kHtml), "{{style}}", live_page::kStyle);
  page = filled(std::move(page), "{{script}}", live_page::kScript);
  return {.status = 200, .body = std::move(page), .headers = kPageHeaders, .content_type = "text/html; charset=utf-8"};
}

}  // namespace

std::shared_ptr<const std::string> LiveFeed::json(SteadyClock::time_point now) {
  const std::scoped_lock lock(mutex_);
  if (json_ == nullptr || now - made_at_ >= kFreshness) {
    json_ = std::make_shared<const std::string>(to_json_text(make_()) + "\n");
    made_at_ = now;
  }
  return json_;
}

void add_live_routes(HttpRouter& router, LiveFeed& feed) {
  const auto status = [&feed](const HttpRequest&) -> HttpResponse {
    return {.status = 200, .body = *feed.json(LiveFeed::SteadyClock::now()), .headers = {{"Cache-Control", "no-store"}}};
  };
  router.add("GET", "/status.json", {.handler = {}, .blocking = status});
  const auto page = [answer = page_answer()](const HttpRequest&, HttpReply reply) { reply.send(answer); };
  router.add("GET", "/", {.handler = page, .blocking = {}, .guard = HttpGuard::kOpen});
}

}  // namespace ferry
