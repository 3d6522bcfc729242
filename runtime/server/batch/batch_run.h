#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/batch/batch_input.h"
#include "runtime/server/batch/batch_line.h"
#include "runtime/server/batch/batch_output.h"

namespace ferry {
class HttpCall;
class HttpRouter;
}  // namespace ferry

namespace ferry::batch {

struct BatchCounts {
  int64_t num_skipped = 0;   // lines that were answered before
  int64_t num_answered = 0;  // by this run
  int64_t num_failed = 0;    // by this run, with an error in the place of an answer
  int64_t num_running = 0;
  int64_t done_bytes = 0;  // of the input, in lines that are answered
};

/// Has the routes of a server answer the lines of a file, without a server: each line is a call as a client's would be, made by
/// this process. Lines begin in order, a bounded number at once, and are written as they are answered.
///
/// A line that is refused since the queue is full (503) is asked again when another one has been answered, and for a while even
/// if no other one runs.
///
/// One thread uses it; the routes' handlers answer from theirs.
class BatchRun {
 public:
  struct Options {
    int64_t concurrency = 1;  // >= 1
    ServerLimits limits{};
    /// Why the engine has failed, if it has: then no answer counts any more. May be empty.
    std::function<std::optional<Error>()> failure{};
  };

  /// What it borrows must outlive it.
  BatchRun(const HttpRouter& router, BatchInput& input, BatchOutput& output, Options options);
  ~BatchRun();
  BatchRun(const BatchRun&) = delete;
  BatchRun& operator=(const BatchRun&) = delete;

  /// Begins what may begin, and writes what is answered, for which it waits up to `patience`. False when all is done. Throws
  /// the engine's failure, and Error of the files.
  bool advance(std::chrono::milliseconds patience);
  /// Begins no more lines: advance() comes to an end when those that run are answered.
  void stop_reading() { reads_ = false; }
  /// Whether there are lines that were not begun, or not answered.
  bool has_more() const { return has_more_ || !calls_.empty() || !refused_.empty(); }

  BatchCounts counts() const;
  /// Lines that run or were not begun, for which the rest of the input is read. Some of these may have been answered before.
  int64_t count_left();

 private:
  struct Call {
    BatchRequest request;
    std::string request_id;
    int64_t bytes = 0;  // of the line
    int num_tries = 0;
    std::shared_ptr<HttpCall> call;
  };
  /// Numbers of calls that have news; any thread adds some.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable news;
    std::vector<int64_t> numbers;
  };

  void begin_lines();
  void begin_line(const BatchInput::Line& line);
  void begin_call(Call call);
  std::vector<int64_t> wait_for_news(std::chrono::milliseconds patience);
  void take_news(int64_t number);
  void finish_call(Call call, const HttpResponse& response);
  void note_end(int64_t bytes, bool is_failed);
  void complain(const BatchComplaint& complaint, int64_t bytes);

  const HttpRouter& router_;
  BatchInput& input_;
  BatchOutput& output_;
  const Options options_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();  // and of handlers that answer late
  std::map<int64_t, Call> calls_;                                   // by number
  std::deque<Call> refused_;                                        // since the queue was full
  std::unordered_set<std::string> seen_;                            // custom_ids of this run
  int64_t num_calls_ = 0, previous_end_ = 0;
  int64_t allowed_;  // calls at once: fewer while the queue is full
  bool reads_ = true, has_more_ = true;
  BatchCounts counts_;
};

}  // namespace ferry::batch
