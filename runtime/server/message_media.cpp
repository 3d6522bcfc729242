#include "runtime/server/message_media.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/server/picture_address.h"
#include "runtime/server/picture_fetch.h"

namespace ferry {
namespace {

/// Calls fn(part, where) for every part of a request.
template <class Fn>
void for_each_part(const v1::GenerateRequest& message, Fn fn) {
  for (int m = 0; m < message.chat().messages_size(); ++m) {
    const auto& parts = message.chat().messages(m).parts();
    for (int p = 0; p < parts.size(); ++p)
      fn(parts[p], "chat.messages[" + std::to_string(m) + "].parts[" + std::to_string(p) + "]");
  }
  for (int p = 0; p < message.media_size(); ++p) fn(message.media(p), "media[" + std::to_string(p) + "]");
}

void check_count(int64_t count, int64_t allowed, const char* what) {
  if (count <= allowed) return;
  throw_invalid("the request has " + std::to_string(count) + " " + what + "; allowed: at most " + std::to_string(allowed));
}

void check_source(const v1::Picture& picture, const std::string& where) {
  const bool is_data = picture.source_case() == v1::Picture::kData;
  if ((is_data && !picture.data().empty()) || (!is_data && !picture.url().empty())) return;
  throw_invalid(where + " has neither data nor a url; allowed: exactly one of them");
}

void check_messages(const v1::Chat& chat) {
  for (int m = 0; m < chat.messages_size(); ++m) {
    const v1::ChatMessage& message = chat.messages(m);
    if (!message.content().empty() && message.parts_size() > 0)
      throw_invalid("chat.messages[" + std::to_string(m) + "] has content and parts; allowed: one of them");
  }
}

}  // namespace

void check_media(const v1::GenerateRequest& message, const ServerLimits& limits) {
  check_messages(message.chat());
  if (message.media_size() > 0 && message.input_case() == v1::GenerateRequest::kChat)
    throw_invalid("media is given beside chat; allowed: beside text or token_ids, a chat has its pictures in its messages");
  int64_t num_media = 0, num_frames = 0;
  for_each_part(message, [&](const v1::Part& part, const std::string& where) {
    if (part.part_case() == v1::Part::PART_NOT_SET) throw_invalid(where + " is empty; allowed: text, picture or video");
    if (part.has_text() && where.starts_with("media")) throw_invalid(where + " is text; allowed: picture or video");
    if (part.has_picture()) check_source(part.picture(), where + ".picture");
    num_media += part.has_text() ? 0 : 1;
    num_frames += part.video().frames_size();
    check_count(num_media, limits.pictures, "pictures and videos");
    check_count(num_frames, limits.video_frames, "frames of videos");
    for (int f = 0; f < part.video().frames_size(); ++f)
      check_source(part.video().frames(f), where + ".video.frames[" + std::to_string(f) + "]");
  });
}

bool has_media(const v1::GenerateRequest& message) {
  bool found = false;
  for_each_part(message, [&](const v1::Part& part, const std::string&) { found = found || !part.has_text(); });
  return found;
}

std::string MessageMedia::read(const v1::ChatMessage& message) {
  if (message.parts().empty()) return message.content();
  std::string text;
  for (const v1::Part& part : message.parts()) {
    if (part.has_text()) {
      text += part.text();
      continue;
    }
    read(part);
    text += engine_.media().placeholder(media_.back()->kind);
  }
  return text;
}

void MessageMedia::read(const v1::Part& part) {
  task_.check_in();
  media_.push_back(part.has_video() ? read_video(part.video(), "video " + std::to_string(++num_videos_))
                                    : read_picture(part.picture(), "picture " + std::to_string(++num_pictures_)));
}

std::shared_ptr<const Medium> MessageMedia::read_picture(const v1::Picture& picture, const std::string& name) {
  const MediaIntake& intake = engine_.media();
  std::vector<std::byte> fetched;
  return intake.read_picture(bytes_of(picture, fetched, name), name, intake_task());
}

std::shared_ptr<const Medium> MessageMedia::read_video(const v1::Video& video, const std::string& name) {
  const MediaIntake& intake = engine_.media();
  std::vector<std::byte> fetched;
  VideoFiles files{.num_frames = video.frames_size(), .frame = [&](int64_t i) {
                     task_.check_in();
                     return bytes_of(video.frames(static_cast<int>(i)), fetched, name + ", frame " + std::to_string(i));
                   }};
  files.max_frames = task_.limits.video_frames;
  if (video.has_fps()) files.fps = video.fps();
  return intake.read_video(files, name, intake_task());
}

IntakeTask MessageMedia::intake_task() const {
  int64_t held_bytes = 0;
  for (const auto& medium : media_) held_bytes += medium->num_bytes();
  return {.check_in = task_.check_in, .held_bytes = held_bytes};
}

/// Of the message itself, or of `fetched`.
std::span<const std::byte> MessageMedia::bytes_of(const v1::Picture& picture, std::vector<std::byte>& fetched,
                                                  const std::string& name) {
  if (picture.has_data()) return std::as_bytes(std::span(picture.data()));
  const int64_t max_bytes = engine_.media().reader().limits().picture.max_bytes;
  fetched = is_data_url(picture.url()) ? read_data_url(picture.url(), max_bytes, name) : fetch(picture.url(), name);
  return fetched;
}

/// A host that is slow is no reason to say that the call's own deadline has passed.
std::vector<std::byte> MessageMedia::fetch(const std::string& url, const std::string& name) {
  using std::chrono::milliseconds;
  if (task_.limits.picture_hosts.empty()) {
    throw_invalid(
        name +
        ": its url is on another host; allowed: data, or a url that begins with data: (this server was started without "
        "--allow-remote-images)");
  }
  const auto start = std::chrono::steady_clock::now();
  auto timeout = std::chrono::ceil<milliseconds>(fetch_time_left_);
  if (task_.deadline) timeout = std::min(timeout, std::chrono::ceil<milliseconds>(*task_.deadline - start));
  try {
    auto bytes = fetch_picture(url,
                               {.hosts = task_.limits.picture_hosts,
                                .max_bytes = engine_.media().reader().limits().picture.max_bytes,
                                .timeout = std::max(timeout, milliseconds(1)),
                                .check_in = task_.check_in},
                               name, task_.trust);
    fetch_time_left_ -= std::chrono::steady_clock::now() - start;
    return bytes;
  } catch (const Error& error) {
    task_.check_in();
    if (error.code() != ErrorCode::kDeadlineExceeded) throw;
    throw Error(ErrorCode::kUnavailable,
                std::string(error.what()) + "; allowed: --picture-fetch-seconds for all files of a request together");
  }
}

}  // namespace ferry
