#include "runtime/server/profile_control.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "profiler/export/capture_files.h"
#include "runtime/actions/advise.h"
#include "runtime/base/error.h"
#include "runtime/server/profile_request.h"

namespace ferry {
namespace {

constexpr int kWriterNice = 10;  // files give way to steps

/// "20261122T031500.123", of the local clock.
std::string time_name() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32], name[48];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%S", &parts);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::snprintf(name, sizeof name, "%s.%03d", text, static_cast<int>(ms));
  return name;
}

/// Whether a rank was lost before it could hand in its part and this process is about to end for it, as it is but over sockets.
bool is_last(const Capture& capture) {
  return capture.info.transport != "sockets" &&
         std::any_of(capture.ranks.begin(), capture.ranks.end(), [](const RankCapture& rank) { return rank.threads.empty(); });
}

}  // namespace

ProfileControl::ProfileControl(CaptureSource& source, std::filesystem::path root, bool keep_last_steps)
    : source_(source), folder_(std::move(root)), keep_last_steps_(keep_last_steps), shown_(std::make_shared<Job>()) {
  complete_.reserve(2);  // receive() is on the engine's thread
  source_.set_on_capture([this](Capture capture) { receive(std::move(capture)); },
                         [this](const std::string& why) {
                           std::fprintf(stderr, "ferry: the capture was given up: %s\n", why.c_str());
                           give_up(why);
                         });
  writer_ = std::thread([this] { run_writer(); });
}

ProfileControl::~ProfileControl() {
  source_.set_on_capture({}, {});
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = is_ending_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

void ProfileControl::leave() {
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
  }
  changed_.notify_all();
}

/// Takes the folder for a capture that is about to begin.
std::shared_ptr<ProfileControl::Job> ProfileControl::begin(const std::filesystem::path& directory) {
  const std::scoped_lock lock(mutex_);
  if (is_leaving_) throw Error(ErrorCode::kUnavailable, "the server is shutting down and begins no more captures");
  if (state_ != State::kIdle) {
    throw Error(ErrorCode::kFailedPrecondition, state_ == State::kRecording
                                                    ? "a capture is running already, into " + shown_->directory.string()
                                                    : "a capture is still being written to " + shown_->directory.string());
  }
  const auto job = std::make_shared<Job>();
  job->directory = folder_.claim(directory.empty() ? std::filesystem::path(time_name()) : directory);
  state_ = State::kRecording;
  is_awaited_ = true;
  shown_ = asked_ = job;
  return job;
}

std::filesystem::path ProfileControl::start(const TracePlan& plan, const std::filesystem::path& directory) {
  check_plan(plan);
  const std::scoped_lock asking(asking_);
  const std::shared_ptr<Job> job = begin(directory);
  try {
    source_.start(plan);
  } catch (const std::exception& error) {  // not only Error: memory or threads may run out
    give_up(error.what());
    throw;
  }
  return job->directory;
}

std::filesystem::path ProfileControl::stop(bool wait) {
  std::shared_ptr<Job> job;
  {
    const std::scoped_lock asking(asking_);
    bool is_awaited = false;
    {
      const std::scoped_lock lock(mutex_);
      job = asked_;
      is_awaited = is_awaited_;
      if (job == nullptr || job->has_ended)
        throw Error(ErrorCode::kFailedPrecondition, "no capture is running; start one first");
    }
    try {
      if (is_awaited) source_.stop();
    } catch (const Error& error) {
      // It may have ended by itself after its number of steps.
      if (error.code() != ErrorCode::kFailedPrecondition) throw;
    }
  }
  return end(job, wait);
}

std::filesystem::path ProfileControl::save(const std::filesystem::path& directory, bool wait) {
  std::shared_ptr<Job> job;
  {
    const std::scoped_lock asking(asking_);
    job = begin(directory);
    try {
      source_.save_snapshot();
    } catch (const std::exception& error) {
      give_up(error.what());
      throw;
    }
  }
  return end(job, wait);
}

/// The job's capture has ended; its folder.
std::filesystem::path ProfileControl::end(const std::shared_ptr<Job>& job, bool wait) {
  std::unique_lock lock(mutex_);
  if (job == asked_ && is_awaited_) state_ = State::kWriting;
  if (wait) {
    changed_.wait(lock, [&] { return job->has_ended || is_leaving_; });
    if (!job->has_ended)
      throw Error(ErrorCode::kUnavailable,
                  "the server is shutting down; nobody waits for the capture in " + job->directory.string());
    if (!job->error.empty()) throw Error(ErrorCode::kFailedPrecondition, job->error);
  }
  return job->directory;
}

ProfileControl::Status ProfileControl::status() const {
  const std::scoped_lock lock(mutex_);
  return {.state = state_, .directory = shown_->directory, .error = shown_->error};
}

/// On the engine's thread.
void ProfileControl::receive(Capture capture) {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<Job> job = asked_;
  if (!std::exchange(is_awaited_, false)) {  // nobody asked: a rank was lost, perhaps while the last capture is being written
    if (!keep_last_steps_) return;
    job = std::make_shared<Job>();
    job->directory = folder_.root() / ("lost-" + time_name());
  }
  state_ = State::kWriting;
  complete_.push_back({.job = std::move(job), .capture = std::move(capture)});
  changed_.notify_all();
}

/// The source could not begin or complete what was asked for. On any thread.
void ProfileControl::give_up(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (!std::exchange(is_awaited_, false)) return;
  asked_->error = why;
  asked_->has_ended = true;
  state_ = State::kIdle;
  changed_.notify_all();
}

void ProfileControl::run_writer() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kWriterNice);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !complete_.empty() || is_ending_; });
    if (complete_.empty()) return;
    Complete next = std::move(complete_.front());
    complete_.erase(complete_.begin());
    shown_ = next.job;
    lock.unlock();
    write(std::move(next));
    lock.lock();
  }
}

void ProfileControl::write(Complete complete) {
  Capture& capture = complete.capture;
  const std::filesystem::path& directory = complete.job->directory;  // does not change any more
  std::string error;
  try {
    if (is_last(capture)) {  // the rest can be made from it
      write_capture(directory, capture);
      std::fprintf(stderr, "ferry: what this rank recorded is in %s; `ferry trace report` makes the rest\n", directory.c_str());
    } else {
      write_capture_files(directory, std::move(capture), find_and_advise);
      std::fprintf(stderr, "ferry: timeline in %s\n", directory.c_str());
    }
  } catch (const std::exception& e) {  // not only Error: memory may run out
    error = e.what();
    std::fprintf(stderr, "ferry: the capture was not written: %s\n", e.what());
  }
  const std::scoped_lock lock(mutex_);
  complete.job->error = std::move(error);
  complete.job->has_ended = true;
  if (complete_.empty()) state_ = State::kIdle;
  changed_.notify_all();
}

}  // namespace ferry
