#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/server/capture_source.h"
#include "runtime/server/trace_folder.h"

namespace ferry {

/// Captures of a running server, whatever protocol asks for them. Recording and collecting happen on the engine's thread
/// between steps; files are written by a thread of this object's own, at low priority. Any thread may call any method.
class ProfileControl {
 public:
  enum class State { kIdle, kRecording, kWriting };
  struct Status {
    State state = State::kIdle;
    std::filesystem::path directory;  // of the capture that runs, else of the last one
    std::string error;                // why the last one could not be written
  };

  /// All captures stay below `root`; those that name no folder get a new one. With `keep_last_steps` a lost rank leaves the
  /// coordinator's last steps there, too. The source must outlive this.
  ProfileControl(CaptureSource& source, std::filesystem::path root, bool keep_last_steps);
  /// Waits until what is being written is written.
  ~ProfileControl();
  ProfileControl(const ProfileControl&) = delete;
  ProfileControl& operator=(const ProfileControl&) = delete;

  /// Begins a capture into `directory` (empty: a new one) and returns the folder. Throws Error{kFailedPrecondition} if one runs
  /// or is being written, or the folder cannot be used; {kInvalidArgument} for a plan out of range or a folder outside of the
  /// root (see TraceFolder).
  std::filesystem::path start(const TracePlan& plan, const std::filesystem::path& directory);
  /// Ends it; `wait` until it is written. Throws Error{kFailedPrecondition} if none runs, and with `wait` what the writing
  /// threw or {kUnavailable} if leave() comes first.
  std::filesystem::path stop(bool wait);
  /// Writes what the flight recorders hold.
  std::filesystem::path save(const std::filesystem::path& directory, bool wait);
  Status status() const;

  /// The server stops: who waits for files waits no longer, and nothing more begins (Error{kUnavailable}). What is or
  /// becomes complete is still written.
  void leave();

 private:
  /// One capture: from the moment it is asked for, or a rank is lost, until it has files or is given up. Under mutex_.
  struct Job {
    std::filesystem::path directory;
    std::string error;  // why it could not be written
    bool has_ended = false;
  };
  struct Complete {
    std::shared_ptr<Job> job;
    Capture capture;
  };

  std::shared_ptr<Job> begin(const std::filesystem::path& directory);
  std::filesystem::path end(const std::shared_ptr<Job>& job, bool wait);
  void receive(Capture capture);
  void give_up(const std::string& why);
  void run_writer();
  void write(Complete complete);

  CaptureSource& source_;
  const TraceFolder folder_;
  const bool keep_last_steps_;
  std::mutex asking_;         // held while the source is asked for something, so that nobody comes between a look and a deed
  mutable std::mutex mutex_;  // guards everything below; taken after asking_
  std::condition_variable changed_;
  State state_ = State::kIdle;
  std::shared_ptr<Job> shown_;      // by status(): the one that runs or is being written, else the last one
  std::shared_ptr<Job> asked_;      // the last one that was asked for; null if none was
  bool is_awaited_ = false;         // the source has neither completed asked_ nor given it up
  std::vector<Complete> complete_;  // not yet taken by the writer: at most one that was asked for and one of a loss
  bool is_leaving_ = false;         // see leave()
  bool is_ending_ = false;          // nothing more is received: the writer ends
  std::thread writer_;
};

}  // namespace ferry
