#include "runtime/media_intake.h"

#include <utility>

#include "runtime/base/error.h"

namespace ferry {
namespace {

/// A medium that is counted for as long as anybody has it.
struct Held {
  Medium medium;
  std::shared_ptr<std::atomic<int64_t>> counter;
  int64_t num_bytes;

  Held(Medium held, std::shared_ptr<std::atomic<int64_t>> open_bytes)
      : medium(std::move(held)), counter(std::move(open_bytes)), num_bytes(medium.num_bytes()) {
    counter->fetch_add(num_bytes);
  }
  ~Held() { counter->fetch_sub(num_bytes); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
};

}  // namespace

MediaIntake::MediaIntake(const VisionConfig& config, const Tokenizer* tokenizer, MediumReader::Limits limits,
                         int64_t max_open_bytes)
    : config_(config),
      tokenizer_(tokenizer),
      reader_(config.pictures, config.videos, limits),
      max_open_bytes_(max_open_bytes),
      open_bytes_(std::make_shared<std::atomic<int64_t>>(0)) {}

std::shared_ptr<const Medium> MediaIntake::read_picture(std::span<const std::byte> file, const std::string& name,
                                                        const IntakeTask& task) const {
  return shared_.get(file, task.check_in, [&] { return hold(reader_.read_picture(file, name, task.check_in), name, task); });
}

std::shared_ptr<const Medium> MediaIntake::read_video(const VideoFiles& files, const std::string& name,
                                                      const IntakeTask& task) const {
  return hold(reader_.read_video(files, name, task.check_in), name, task);
}

/// Several that come at once may together be a little more than is allowed.
std::shared_ptr<const Medium> MediaIntake::hold(Medium medium, const std::string& name, const IntakeTask& task) const {
  const int64_t num_bytes = medium.num_bytes(), num_open = open_bytes_->load();
  if (task.held_bytes + num_bytes > max_open_bytes_) {
    throw_invalid(name + ": the request's pictures and videos up to it have " + std::to_string(task.held_bytes + num_bytes) +
                  " bytes once resized; allowed: --picture-memory " + std::to_string(max_open_bytes_) + " for all requests");
  }
  if (num_open + num_bytes > max_open_bytes_) {
    throw Error(ErrorCode::kResourceExhausted, "pictures and videos of open requests have " + std::to_string(num_open) +
                                                   " bytes, and " + std::to_string(num_bytes) + " more came; allowed: " +
                                                   std::to_string(max_open_bytes_) + " together; try again later");
  }
  const auto held = std::make_shared<const Held>(std::move(medium), open_bytes_);
  return {held, &held->medium};
}

std::string MediaIntake::placeholder(Medium::Kind kind) const {
  if (tokenizer_ == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "places for pictures in text need a tokenizer; token ids work without");
  }
  const VisionTokens& tokens = config_.tokens;
  const TokenId pad = kind == Medium::Kind::kVideo ? tokens.video : tokens.image;
  std::string text;
  for (const TokenId id : {tokens.vision_start, pad, tokens.vision_end}) text += tokenizer_->token_bytes(id);
  return text;
}

MediaPrompt MediaIntake::place(std::span<const TokenId> ids, std::span<const std::shared_ptr<const Medium>> media) const {
  const auto tokenize = [this](std::string_view text) {
    if (tokenizer_ == nullptr) throw Error(ErrorCode::kFailedPrecondition, "the time stamps of a video need a tokenizer");
    return tokenizer_->encode(text);
  };
  return place_media(ids, media, config_.tokens, config_.plan.merge_size, tokenize);
}

}  // namespace ferry
