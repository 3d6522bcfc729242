#include "runtime/server/message_media.h"

#include "runtime/base/error.h"

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

MediaFile file_of(const v1::Picture& picture) { return {.data = picture.data(), .url = picture.url()}; }

/// Of a part that is not text.
MediaPart part_of(const v1::Part& part) {
  if (part.has_picture()) return {.kind = Medium::Kind::kPicture, .files = {file_of(part.picture())}, .fps = {}};
  MediaPart video{.kind = Medium::Kind::kVideo, .files = {}, .fps = {}};
  for (const v1::Picture& frame : part.video().frames()) video.files.push_back(file_of(frame));
  if (part.video().has_fps()) video.fps = part.video().fps();
  return video;
}

}  // namespace

void check_media(const v1::GenerateRequest& message, const ServerLimits& limits) {
  check_messages(message.chat());
  if (message.media_size() > 0 && message.input_case() == v1::GenerateRequest::kChat)
    throw_invalid("media is given beside chat; allowed: beside text or token_ids, a chat has its pictures in its messages");
  MediaCount count(limits);
  for_each_part(message, [&](const v1::Part& part, const std::string& where) {
    if (part.part_case() == v1::Part::PART_NOT_SET) throw_invalid(where + " is empty; allowed: text, picture or video");
    if (part.has_text() && where.starts_with("media")) throw_invalid(where + " is text; allowed: picture or video");
    if (part.has_picture()) check_source(part.picture(), where + ".picture");
    if (part.has_picture()) count.add_picture();
    if (part.has_video()) count.add_video(part.video().frames_size());
    for (int f = 0; f < part.video().frames_size(); ++f)
      check_source(part.video().frames(f), where + ".video.frames[" + std::to_string(f) + "]");
  });
}

bool has_media(const v1::GenerateRequest& message) {
  bool found = false;
  for_each_part(message, [&](const v1::Part& part, const std::string&) { found = found || !part.has_text(); });
  return found;
}

std::vector<std::string_view> urls_of_media(const v1::GenerateRequest& message) {
  std::vector<std::string_view> urls;
  const auto add = [&](const v1::Picture& picture) {
    if (!picture.url().empty()) urls.emplace_back(picture.url());
  };
  for_each_part(message, [&](const v1::Part& part, const std::string&) {
    if (part.has_picture()) add(part.picture());
    for (const v1::Picture& frame : part.video().frames()) add(frame);
  });
  return urls;
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
    text += engine_.media().placeholder(media().back()->kind);
  }
  return text;
}

void MessageMedia::read(const v1::Part& part) { media_.read(part_of(part)); }

}  // namespace ferry
