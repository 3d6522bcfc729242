#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/server/capture_source.h"
#include "runtime/server/trace_folder.h"

namespace ferry {

/// Captures of a running server, whatever protocol asks for them. Recording and collecting happen on the engine's thread between
/// steps; files are written by a thread of this object's own, at low priority. Any thread may call any method.
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
  /// or is being written, or the folder cannot be used; {kInvalidArgument} for a plan out of range or a folder outside of the root (see TraceFolder).
  std::filesystem::path start(const TracePlan& plan, const std::filesystem::path& directory);
  /// Ends it; `wait` until it is written. Throws Error{kFailedPrecondition} if none runs, and with `wait` what the writing threw.
  std::filesystem::path stop(bool wait);
  /// Writes what the flight recorders hold.
  std::filesystem::path save(const std::filesystem::path& directory, bool wait);
  Status status() const;

 private:
  std::filesystem::path begin(const std::filesystem::path& directory);
  std::filesystem::path end(std::unique_lock<std::mutex>& lock, bool wait);
  void receive(Capture capture);
  void run_writer();
  void write(Capture capture);

  CaptureSource& source_;
  const TraceFolder folder_;
  const bool keep_last_steps_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  Status status_;
  std::optional<Capture> pending_;  // complete, not yet taken by the writer
  bool is_leaving_ = false;
  std::thread writer_;
};

}  // namespace ferry
