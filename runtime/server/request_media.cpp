#include "runtime/server/request_media.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/server/picture_address.h"
#include "runtime/server/picture_fetch.h"

namespace ferry {
namespace {

void check_count(int64_t count, int64_t allowed, const char* what) {
  if (count <= allowed) return;
  throw_invalid("the request has " + std::to_string(count) + " " + what + "; allowed: at most " + std::to_string(allowed));
}

}  // namespace

void MediaCount::add(int64_t num_frames) {
  check_count(++num_media_, limits_.pictures, "pictures and videos");
  check_count(num_frames_ += num_frames, limits_.video_frames, "frames of videos");
}

PromptStep step_of_media(std::span<const std::string_view> urls, const ServerLimits& limits) {
  std::vector<std::string> hosts = hosts_to_ask(urls, limits.picture_hosts);
  return {.work = hosts.empty() ? PromptWork::kMedia : PromptWork::kFetch, .hosts = std::move(hosts)};
}

void RequestMedia::read(const MediaPart& part) {
  task_.check_in();
  const bool is_video = part.kind == Medium::Kind::kVideo;
  media_.push_back(is_video ? read_video(part, "video " + std::to_string(++num_videos_))
                            : read_picture(part.files.at(0), "picture " + std::to_string(++num_pictures_)));
}

MediaPrompt RequestMedia::place(std::vector<TokenId> ids) const {
  if (media_.empty()) return {.ids = std::move(ids), .media = nullptr};
  return engine_.media().place(ids, media_);
}

std::shared_ptr<const Medium> RequestMedia::read_picture(const MediaFile& picture, const std::string& name) {
  const MediaIntake& intake = engine_.media();
  std::vector<std::byte> fetched;
  return intake.read_picture(bytes_of(picture, fetched, name), name, intake_task());
}

std::shared_ptr<const Medium> RequestMedia::read_video(const MediaPart& video, const std::string& name) {
  const MediaIntake& intake = engine_.media();
  std::vector<std::byte> fetched;
  VideoFiles files{.num_frames = std::ssize(video.files), .frame = [&](int64_t i) {
                     task_.check_in();
                     return bytes_of(video.files[static_cast<std::size_t>(i)], fetched, name + ", frame " + std::to_string(i));
                   }};
  files.max_frames = task_.limits.video_frames;
  if (video.fps) files.fps = *video.fps;
  return intake.read_video(files, name, intake_task());
}

IntakeTask RequestMedia::intake_task() const {
  int64_t held_bytes = 0;
  for (const auto& medium : std::set(media_.begin(), media_.end())) held_bytes += medium->num_bytes();
  return {.check_in = task_.check_in, .held_bytes = held_bytes};
}

/// Of the request itself, or of `fetched`.
std::span<const std::byte> RequestMedia::bytes_of(const MediaFile& file, std::vector<std::byte>& fetched,
                                                  const std::string& name) {
  if (!file.data.empty()) return std::as_bytes(std::span(file.data));
  const int64_t max_bytes = engine_.media().reader().limits().picture.max_bytes;
  fetched = is_data_url(file.url) ? read_data_url(file.url, max_bytes, name) : fetch(std::string(file.url), name);
  return fetched;
}

/// A host that is slow is no reason to say that the call's own deadline has passed.
std::vector<std::byte> RequestMedia::fetch(const std::string& url, const std::string& name) {
  using std::chrono::milliseconds;
  if (task_.limits.picture_hosts.empty()) {
    throw_invalid(
        name +
        ": its url is on another host; allowed: data, or a url that begins with data: (this server was started without "
        "--allow-remote-images)");
  }
  const auto start = task_.clock.now();
  auto timeout = std::chrono::ceil<milliseconds>(fetch_time_left_);
  if (task_.deadline) timeout = std::min(timeout, std::chrono::ceil<milliseconds>(*task_.deadline - start));
  try {
    auto bytes = fetch_picture(url,
                               {.hosts = task_.limits.picture_hosts,
                                .max_bytes = engine_.media().reader().limits().picture.max_bytes,
                                .timeout = std::max(timeout, milliseconds(1)),
                                .connect_timeout = task_.connect_timeout,
                                .check_in = task_.check_in},
                               name, task_.trust);
    fetch_time_left_ -= task_.clock.now() - start;
    return bytes;
  } catch (const Error& error) {
    task_.check_in();
    if (error.code() != ErrorCode::kDeadlineExceeded) throw;
    throw Error(ErrorCode::kUnavailable,
                std::string(error.what()) + "; allowed: --picture-fetch-seconds for all files of a request together");
  }
}

}  // namespace ferry
