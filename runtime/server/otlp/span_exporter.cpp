#include "runtime/server/otlp/span_exporter.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {

SpanExporter::SpanExporter(SpanSource source, Send send, Clock& clock)
    : source_(std::move(source)), send_(std::move(send)), clock_(clock), thread_([this] { run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::scoped_lock lock(mutex_);
    leaving_ = clock_.now();
  }
  news_.notify_all();
  thread_.join();
}

void SpanExporter::add(RequestSpan span) {
  const std::scoped_lock lock(mutex_);
  if (queue_.size() >= kMaxQueued) {
    ++count_.dropped_full;
    return;
  }
  queue_.push_back(std::move(span));
  if (queue_.size() == 1 || queue_.size() == kMaxBatch) news_.notify_all();
}

SpanCount SpanExporter::count() const {
  const std::scoped_lock lock(mutex_);
  return count_;
}

void SpanExporter::run() {
  for (std::vector<RequestSpan> batch = next_batch(); !batch.empty(); batch = next_batch()) {
    const int64_t num_taken = deliver(batch);
    const std::scoped_lock lock(mutex_);
    count_.sent += num_taken;
    count_.dropped_unsent += std::ssize(batch) - num_taken;
    const bool is_late = leaving_ && (num_taken == 0 || clock_.now() - *leaving_ > kLeaveTime);
    if (!is_late) continue;
    count_.dropped_unsent += std::ssize(queue_);
    return queue_.clear();
  }
}

/// What is to be sent next, which waits for others for a while; nothing when it is time to leave.
std::vector<RequestSpan> SpanExporter::next_batch() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [this] { return leaving_ || !queue_.empty(); });
  clock_.wait_for(lock, news_, kBatchPeriod, [this] { return leaving_ || queue_.size() >= kMaxBatch; });
  const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), kMaxBatch));
  std::vector<RequestSpan> batch(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  return batch;
}

/// How many spans of a batch the collector took; it is sent again and again while the collector is away.
int64_t SpanExporter::deliver(const std::vector<RequestSpan>& batch) {
  SendAnswer answer{.result = SendResult::kRefused, .complaint = {}};
  try {
    const std::string json = to_otlp_json(batch, source_);
    std::chrono::milliseconds pause = kBatchPeriod;
    answer = send_(json);
    for (int i = 1; i < kMaxAttempts && answer.result == SendResult::kTryAgain && sleep_for(pause); ++i, pause *= 2)
      answer = send_(json);
  } catch (const std::exception& error) {  // such as std::bad_alloc
    answer.complaint = error.what();
  }
  const bool is_taken = answer.result == SendResult::kTaken;
  tell(is_taken && answer.num_rejected == 0 ? "" : answer.complaint);
  return is_taken ? std::max<int64_t>(std::ssize(batch) - answer.num_rejected, 0) : 0;
}

/// False if it is time to leave.
bool SpanExporter::sleep_for(std::chrono::milliseconds period) {
  std::unique_lock lock(mutex_);
  return !clock_.wait_for(lock, news_, period, [this] { return leaving_.has_value(); });
}

/// Once when the collector begins to fail, and once when it takes spans again.
void SpanExporter::tell(const std::string& complaint) {
  const bool is_away = !complaint.empty();
  if (is_away == was_away_) return;
  was_away_ = is_away;
  std::fprintf(stderr, "ferry: %s\n", is_away ? one_line("spans are dropped: " + complaint).c_str() : "spans are taken again");
}

}  // namespace ferry
