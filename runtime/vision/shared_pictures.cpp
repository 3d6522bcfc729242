#include "runtime/vision/shared_pictures.h"

namespace ferry {

std::shared_ptr<const Medium> SharedPictures::get(std::span<const std::byte> file, const std::function<void()>& check_in,
                                                  const Decode& decode) {
  const MediumDigest digest = digest_of_file(file);
  if (std::shared_ptr<const Medium> held = begin(digest, check_in)) return held;
  std::shared_ptr<const Medium> picture;
  try {
    picture = decode();
  } catch (...) {
    end(digest, nullptr);
    throw;
  }
  end(digest, picture);
  return picture;
}

/// Returns the picture if somebody holds it, or once another thread has decoded it. Else null, and this thread has to decode.
std::shared_ptr<const Medium> SharedPictures::begin(const MediumDigest& file, const std::function<void()>& check_in) {
  constexpr std::chrono::milliseconds kTimeBetweenLooks{20};  // at whether the caller still wants it
  std::unique_lock lock(mutex_);
  while (true) {
    const auto [entry, is_new] = entries_.try_emplace(file);
    if (is_new) return nullptr;
    if (!entry->second.is_decoding) {
      std::shared_ptr<const Medium> picture = entry->second.picture.lock();
      entry->second.is_decoding = picture == nullptr;
      return picture;
    }
    clock_.wait_until(lock, decoded_, clock_.now() + kTimeBetweenLooks);
    lock.unlock();
    if (check_in) check_in();
    lock.lock();
  }
}

void SharedPictures::end(const MediumDigest& file, const std::shared_ptr<const Medium>& picture) {
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return !entry.second.is_decoding && entry.second.picture.expired(); });
    if (picture == nullptr) {
      entries_.erase(file);
    } else {
      entries_[file] = {.is_decoding = false, .picture = picture};
    }
  }
  decoded_.notify_all();
}

}  // namespace ferry
