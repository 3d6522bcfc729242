#include "runtime/loaded_vision.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

/// A picture of one row of blocks cannot shrink however few pixels the checkpoint wants: it may be 200 times as long.
constexpr int64_t kNarrowTokens = 201;

/// Of a picture, or of a video's step of time, where the context or the checkpoint's processors let none be larger.
int64_t largest_medium(const MediaOptions& options, const VisionConfig& config, int64_t max_prompt) {
  const auto tokens = [](const PictureProcessor& p) {
    return (p.max_pixels + p.factor() * p.factor() - 1) / (p.factor() * p.factor());
  };
  const int64_t largest = std::max({tokens(config.pictures), tokens(config.videos.frames), kNarrowTokens});
  return std::min({options.max_tokens, largest, max_prompt});
}

/// Of the tower without its cache.
int64_t buffer_bytes(const VisionPlan& plan, DType dtype, MediaEncoder::Options encoder) {
  encoder.cache_bytes = 0;
  return MediaEncoder::max_bytes(plan, dtype, encoder);
}

/// Each option must find room beside those before it, so that the one which asks for too much is blamed. As little
/// --picture-memory as by default is a bound that a run may never come near. (Of a device's memory Engine has asked.)
void require_media_memory(const MediaOptions& options, int64_t tower_bytes, const ComputeResources& compute) {
  const int64_t beside = compute.device ? 0 : tower_bytes + options.cache_bytes;
  if (!compute.device) {
    require_memory(tower_bytes,
                   "--picture-tokens is " + std::to_string(options.max_tokens) + ": what the vision tower computes with");
    require_memory(
        beside, "--picture-cache is " + size_that_holds(options.cache_bytes) + ": the cache with the vision tower's buffers");
  }
  if (options.open_bytes <= MediaOptions{}.open_bytes) return;
  require_memory(beside + options.open_bytes, "--picture-memory is " + size_that_holds(options.open_bytes) +
                                                  ": pixels with the vision tower's buffers and cache");
}

MediaEncoder::Options encoder_options(const MediaOptions& options, const VisionConfig& config, int64_t max_prompt) {
  return {.max_patches = largest_medium(options, config, max_prompt) * config.plan.merged_patches(),
          .cache_bytes = options.cache_bytes};
}

MediaEncoder::Options with_memory(const MediaEncoder::Options& encoder, const MediaOptions& options, const VisionPlan& plan,
                                  DType dtype, const ComputeResources& compute) {
  require_media_memory(options, buffer_bytes(plan, dtype, encoder), compute);
  return encoder;
}

MediumReader::Limits reader_limits(const MediaOptions& options, const VisionConfig& config, int64_t max_prompt) {
  return {.picture = options.limits, .max_tokens = largest_medium(options, config, max_prompt)};
}

}  // namespace

LoadedVision::LoadedVision(const EngineOptions& options, const VisionConfig& vision_config, const Checkpoint& checkpoint,
                           const Tokenizer* tokenizer, ComputeResources& compute, DType dtype, int64_t max_prompt)
    : config(vision_config),
      intake(config, tokenizer, reader_limits(options.media, config, max_prompt), options.media.open_bytes),
      weights(load_vision(checkpoint, config.plan, compute.backend, compute.pool, dtype, options.check_weights)),
      encoder(intake.reader(), config.plan, weights, compute.stream, dtype,
              with_memory(encoder_options(options.media, config, max_prompt), options.media, config.plan, dtype, compute)),
      weight_bytes(vision_bytes(checkpoint, dtype)),
      tower_bytes(buffer_bytes(config.plan, dtype, encoder.options())),
      cache_bytes(options.media.cache_bytes),
      open_bytes(options.media.open_bytes) {}

std::string LoadedVision::describe_memory() const {
  return size_that_holds(weight_bytes) + " of weights, up to " + size_that_holds(tower_bytes) +
         " of buffers (--picture-tokens), " + size_that_holds(cache_bytes) + " of cache (--picture-cache) and " +
         size_that_holds(open_bytes) + " of pixels (--picture-memory)";
}

std::optional<VisionConfig> find_vision(const std::filesystem::path& model, const Checkpoint& checkpoint,
                                        std::string& complaint) {
  std::optional<VisionConfig> config;
  try {
    config = load_vision_config(model);
  } catch (const Error& error) {
    complaint = error.what();
    return std::nullopt;
  }
  if (!config) complaint = "the checkpoint has no vision tower";
  if (!config || std::ranges::any_of(checkpoint.names(), is_of_vision_tower)) return config;
  complaint = "the checkpoint has no weights of its vision tower";
  return std::nullopt;
}

namespace {

/// What a run's pictures pass; nothing, and `complaint` says why, if it takes none.
std::optional<VisionConfig> wanted_vision(const EngineOptions& options, const Checkpoint& checkpoint, int64_t max_prompt,
                                          std::string& complaint) {
  if (!options.media.is_wanted || options.media.max_tokens == 0) {
    complaint =
        options.media.is_wanted ? "--picture-tokens is 0; allowed with pictures: 1 and more" : "this command takes none";
    return std::nullopt;
  }
  std::optional<VisionConfig> config = find_vision(options.model, checkpoint, complaint);
  if (!config) return std::nullopt;
  if (const int64_t fewest = MediumReader::fewest_tokens(config->pictures, config->videos); max_prompt < fewest) {
    complaint = "prompts have room for " + std::to_string(max_prompt) +
                " tokens, and the checkpoint's smallest pictures have " + std::to_string(fewest);
    return std::nullopt;
  }
  return config;
}

}  // namespace

int64_t vision_need(const EngineOptions& options, const Checkpoint& checkpoint, DType dtype, int64_t max_prompt) {
  std::string complaint;
  const std::optional<VisionConfig> config = wanted_vision(options, checkpoint, max_prompt, complaint);
  if (!config) return 0;
  return vision_bytes(checkpoint, dtype) +
         MediaEncoder::max_bytes(config->plan, dtype, encoder_options(options.media, *config, max_prompt));
}

std::unique_ptr<LoadedVision> load_vision(const EngineOptions& options, const Checkpoint& checkpoint,
                                          const Tokenizer* tokenizer, ComputeResources& compute, DType dtype,
                                          int64_t max_prompt, std::string& complaint) {
  const std::optional<VisionConfig> config = wanted_vision(options, checkpoint, max_prompt, complaint);
  if (!config) return nullptr;
  return std::make_unique<LoadedVision>(options, *config, checkpoint, tokenizer, compute, dtype, max_prompt);
}

}  // namespace ferry
