#include "runtime/server/batch/batch_run.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <variant>

#include "runtime/base/random_id.h"
#include "runtime/server/http/call.h"
#include "runtime/server/http/router.h"

namespace ferry::batch {
namespace {

constexpr int kQueueFull = 503;
constexpr int kMostTries = 100;                     // of a line that finds the queue full though nothing else runs
constexpr std::chrono::milliseconds kTryPause{50};  // between these

}  // namespace

BatchRun::BatchRun(const HttpRouter& router, BatchInput& input, BatchOutput& output, Options options)
    : router_(router), input_(input), output_(output), options_(std::move(options)), allowed_(options_.concurrency) {}

/// Whoever still answers hears that nobody waits for it.
BatchRun::~BatchRun() {
  for (auto& [number, call] : calls_) call.call->end(HttpEnd::kGone);
}

BatchCounts BatchRun::counts() const {
  BatchCounts counts = counts_;
  counts.num_running = std::ssize(calls_) + std::ssize(refused_);
  return counts;
}

int64_t BatchRun::count_left() {
  int64_t num_left = counts().num_running;
  while (has_more_ && input_.next()) ++num_left;
  has_more_ = false;
  return num_left;
}

bool BatchRun::advance(std::chrono::milliseconds patience) {
  begin_lines();
  for (const int64_t number : wait_for_news(patience)) take_news(number);
  return !calls_.empty() || !refused_.empty() || (reads_ && has_more_);
}

void BatchRun::begin_lines() {
  while (std::ssize(calls_) < allowed_ && !refused_.empty()) {
    Call call = std::move(refused_.front());
    refused_.pop_front();
    begin_call(std::move(call));
  }
  // A few only, so that lines that need no call do not keep those waiting that have their answers.
  for (int64_t i = 0; i < options_.concurrency && reads_ && has_more_ && std::ssize(calls_) < allowed_; ++i) {
    if (const std::optional<BatchInput::Line> line = input_.next()) {
      begin_line(*line);
    } else {
      has_more_ = false;
    }
  }
}

void BatchRun::begin_line(const BatchInput::Line& line) {
  const int64_t bytes = line.end - std::exchange(previous_end_, line.end);
  if (output_.has_answer_to_line(line.number)) {
    ++counts_.num_skipped;
    counts_.done_bytes += bytes;
    return;
  }
  if (line.is_too_long) {
    return complain(
        {.line = line.number,
         .custom_id = "",
         .code = "line_too_long",
         .message = "the line has more bytes than a request may have, " + std::to_string(options_.limits.http_body_bytes)},
        bytes);
  }
  std::variant<BatchRequest, BatchComplaint> read = read_batch_line(line.text, line.number, options_.limits);
  if (const auto* complaint = std::get_if<BatchComplaint>(&read)) return complain(*complaint, bytes);
  auto& request = std::get<BatchRequest>(read);
  if (!seen_.insert(request.custom_id).second) {
    return complain({.line = line.number,
                     .custom_id = request.custom_id,
                     .code = "duplicate_custom_id",
                     .message = "an earlier line has the same custom_id; allowed: one that no other line has"},
                    bytes);
  }
  if (output_.has_answer_to(request.custom_id)) {
    ++counts_.num_skipped;
    counts_.done_bytes += bytes;
    return;
  }
  begin_call({.request = std::move(request), .request_id = random_id(), .bytes = bytes});
}

/// As a server hands a client's call to its route.
void BatchRun::begin_call(Call call) {
  const int64_t number = num_calls_++;
  const auto wake = [inbox = inbox_, number] {
    const std::scoped_lock lock(inbox->mutex);
    inbox->numbers.push_back(number);
    inbox->news.notify_one();
  };
  call.call = std::make_shared<HttpCall>(HttpCallForm{}, wake);
  ++call.num_tries;
  HttpRequest request{.method = "POST",
                      .path = call.request.url,
                      .headers = {{"content-type", "application/json"}, {"x-request-id", call.request_id}},
                      .body = call.request.body,
                      .has_body = true};
  HttpReply reply(call.call);
  const HttpRoute* const route = router_.find("POST", call.request.url);
  calls_.emplace(number, std::move(call));
  if (route == nullptr) return reply.send(http_error(404, "there is no such route"));
  route->handler(std::move(request), std::move(reply));
}

std::vector<int64_t> BatchRun::wait_for_news(std::chrono::milliseconds patience) {
  std::unique_lock lock(inbox_->mutex);
  if (!calls_.empty()) inbox_->news.wait_for(lock, patience, [this] { return !inbox_->numbers.empty(); });
  return std::exchange(inbox_->numbers, {});
}

void BatchRun::take_news(int64_t number) {
  const auto place = calls_.find(number);
  if (place == calls_.end()) return;
  std::string bytes;
  HttpCall::News news = place->second.call->take(bytes);
  const bool is_over = news.response || news.cut || news.head;
  if (!is_over) return;
  Call call = std::move(place->second);
  calls_.erase(place);
  call.call->end(news.response ? HttpEnd::kAnswered : HttpEnd::kGone);
  finish_call(std::move(call), news.response.value_or(http_error(500, "the answer ended before it was whole")));
}

void BatchRun::finish_call(Call call, const HttpResponse& response) {
  if (response.status >= 500 && options_.failure) {
    if (const std::optional<Error> failure = options_.failure()) throw *failure;
  }
  if (response.status == kQueueFull && (!calls_.empty() || call.num_tries < kMostTries)) {
    if (calls_.empty()) std::this_thread::sleep_for(kTryPause);
    allowed_ = std::max<int64_t>(std::ssize(calls_), 1);
    refused_.push_back(std::move(call));
    return;
  }
  allowed_ = std::min(allowed_ + 1, options_.concurrency);
  output_.add(answer_line(call.request, call.request_id, response));
  note_end(call.bytes, response.status != 200);
}

void BatchRun::complain(const BatchComplaint& complaint, int64_t bytes) {
  output_.add(complaint_line(complaint));
  note_end(bytes, /*is_failed=*/true);
}

void BatchRun::note_end(int64_t bytes, bool is_failed) {
  ++(is_failed ? counts_.num_failed : counts_.num_answered);
  counts_.done_bytes += bytes;
}

}  // namespace ferry::batch
