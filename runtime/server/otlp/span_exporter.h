#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/server/otlp/request_span.h"
#include "runtime/server/otlp/span_count.h"

namespace ferry {

/// How an attempt to hand spans over came out.
enum class SendResult {
  kTaken,
  kTryAgain,  // the collector is away or busy
  kRefused,   // it would refuse them again
};

/// What a collector says to a message of spans.
struct SendAnswer {
  SendResult result = SendResult::kTaken;
  int64_t num_rejected = 0;  // of the spans of a message that was taken
  std::string complaint;     // in a line why not all of it was taken; or a warning of the collector
};

/// Sends requests' spans to a collector, on a thread of its own: who hands one in never waits, and where the collector is slow
/// or away, spans are dropped and counted. Any thread may call any method.
class SpanExporter {
 public:
  static constexpr std::size_t kMaxQueued = 2048, kMaxBatch = 512;  // OpenTelemetry's own (BatchSpanProcessor)
  static constexpr std::chrono::milliseconds kBatchPeriod{1000};    // that spans wait for others
  static constexpr int kMaxAttempts = 4;                        // for a batch; the pause after each doubles from kBatchPeriod
  static constexpr std::chrono::milliseconds kLeaveTime{3000};  // in which what is queued at the end may still be sent

  /// One attempt: gets the JSON. Called on the exporter's thread, with a deadline of its own.
  using Send = std::function<SendAnswer(const std::string& json)>;

  /// `clock`, which must outlive it, tells how long spans wait and attempts are apart.
  SpanExporter(SpanSource source, Send send, Clock& clock = real_clock());
  /// Sends what is queued while the collector takes it and kLeaveTime is not over, beside the attempt that runs, and leaves.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  void add(RequestSpan span);
  SpanCount count() const;

 private:
  void run();
  std::vector<RequestSpan> next_batch();
  int64_t deliver(const std::vector<RequestSpan>& batch);
  bool sleep_for(std::chrono::milliseconds period);
  void tell(const std::string& complaint);

  const SpanSource source_;
  const Send send_;
  Clock& clock_;
  mutable std::mutex mutex_;  // guards all below but was_away_
  std::condition_variable news_;
  std::deque<RequestSpan> queue_;
  SpanCount count_;
  std::optional<Clock::Time> leaving_;  // since when it is time to leave
  bool was_away_ = false;               // of the thread: it has complained
  std::thread thread_;
};

/// How long an attempt to hand spans over may take.
struct SendTimes {
  std::chrono::milliseconds attempt{5000};  // in all
  std::chrono::milliseconds connect{3000};  // of which, until a connection stands
};

/// POSTs to `url` over HTTP or HTTPS.
SpanExporter::Send http_sender(const std::string& url, const SendTimes& times = {});

/// The URL that an option gives a collector: as given, "/v1/traces" where it has no path. Throws Error{kInvalidArgument} that
/// names `option` for anything but http[s]://HOST[:PORT][/PATH].
std::string traces_url(const std::string& option, const std::string& endpoint);

}  // namespace ferry
