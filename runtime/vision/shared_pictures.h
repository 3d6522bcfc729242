#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "runtime/base/clock.h"
#include "runtime/vision/medium.h"

namespace ferry {

/// Decoded pictures that somebody holds, by the bytes of their files. A file that comes again, in one request or in several at
/// once, is decoded once. Nothing is kept for its own sake: a picture that nobody holds any more is forgotten. Any thread may
/// call.
class SharedPictures {
 public:
  using Decode = std::function<std::shared_ptr<const Medium>()>;

  explicit SharedPictures(Clock& clock = real_clock()) : clock_(clock) {}

  /// Returns the picture that `file` was decoded to. If nobody holds it, this thread calls `decode`, or waits while another
  /// thread does. `check_in` (may be empty) is called about every 20 ms of waiting, and what it throws ends it. What `decode`
  /// throws ends this call alone: one of those that wait decodes next.
  std::shared_ptr<const Medium> get(std::span<const std::byte> file, const std::function<void()>& check_in,
                                    const Decode& decode);

 private:
  struct Entry {
    bool is_decoding = true;
    std::weak_ptr<const Medium> picture;
  };

  std::shared_ptr<const Medium> begin(const MediumDigest& file, const std::function<void()>& check_in);
  void end(const MediumDigest& file, const std::shared_ptr<const Medium>& picture);

  Clock& clock_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable decoded_;
  std::map<MediumDigest, Entry> entries_;
};

}  // namespace ferry
