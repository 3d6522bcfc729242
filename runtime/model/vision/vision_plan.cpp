#include "runtime/model/vision/vision_plan.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/is_there.h"
#include "runtime/base/json.h"
#include "runtime/model/config_fields.h"

namespace ferry {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Far above any real tower; products of them stay within int64.
constexpr int64_t kMaxDepth = 1024, kMaxPatch = 256, kMaxMerge = 16, kMaxTemporalPatch = 16, kMaxPositions = int64_t{1} << 20;
constexpr int64_t kMaxPixels = int64_t{1} << 32, kMaxFrames = int64_t{1} << 20;

json read_object(const fs::path& path) {
  json value = read_json_file(path);
  if (!value.is_object()) throw_invalid(path.string() + " is not a JSON object");
  return value;
}

/// New files say how positions turn, old ones leave it to the reader.
double read_rope_theta(const ConfigFields& vision) {
  constexpr double kPublished = 10000.0, kMost = 1e12;
  if (!vision.has("rope_parameters")) return kPublished;
  const ConfigFields rope = vision.object("rope_parameters");
  rope.expect("rope_type", {"axial"});
  return rope.has("rope_theta") ? rope.number("rope_theta", 0.0, kMost) : kPublished;
}

VisionPlan read_plan(const ConfigFields& vision, int64_t decoder_dim) {
  vision.expect("model_type", {"qwen3_5", "qwen3_5_vision", "qwen3_5_moe", "qwen3_5_moe_vision"});
  vision.expect("hidden_act", {"gelu_pytorch_tanh"});
  vision.expect("in_channels", {3});
  vision.expect("deepstack_visual_indexes", {json::array()});
  VisionPlan plan;
  plan.depth = vision.integer("depth", 1, kMaxDepth);
  plan.hidden_dim = vision.integer("hidden_size", 1, kMaxDim);
  plan.intermediate_dim = vision.integer("intermediate_size", 1, kMaxDim);
  plan.num_heads = vision.integer("num_heads", 1, kMaxDim);
  plan.patch_size = vision.integer_or("patch_size", 16, 1, kMaxPatch);
  plan.temporal_patch_size = vision.integer_or("temporal_patch_size", 2, 1, kMaxTemporalPatch);
  plan.merge_size = vision.integer_or("spatial_merge_size", 2, 1, kMaxMerge);
  plan.out_hidden_dim = vision.integer_or("out_hidden_size", decoder_dim, 1, kMaxDim);
  plan.rope_theta = read_rope_theta(vision);
  // A quarter of a head turns by rows and a quarter by columns, each against another one.
  if (plan.hidden_dim % plan.num_heads != 0 || plan.head_dim() % 4 != 0) {
    vision.fail("num_heads", "a divisor of hidden_size " + std::to_string(plan.hidden_dim) + " that leaves a multiple of 4");
  }
  if (plan.out_hidden_dim != decoder_dim) {
    vision.fail("out_hidden_size", std::to_string(decoder_dim) + ", the decoder's hidden_size");
  }
  const int64_t positions = vision.integer_or("num_position_embeddings", 2304, 1, kMaxPositions);
  plan.position_side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(positions))));
  if (plan.position_side * plan.position_side != positions) vision.fail("num_position_embeddings", "the square of an integer");
  return plan;
}

VisionTokens read_tokens(const ConfigFields& top) {
  constexpr int64_t kMaxId = INT32_MAX;
  const auto id = [&](const char* key) { return static_cast<TokenId>(top.integer(key, 0, kMaxId)); };
  return {.image = id("image_token_id"),
          .video = id("video_token_id"),
          .vision_start = id("vision_start_token_id"),
          .vision_end = id("vision_end_token_id")};
}

/// Three factors of channels, each from `above` (excluded) to 1000.
void read_channels(const ConfigFields& fields, const char* key, double above, std::array<float, 3>& channels) {
  constexpr double kMost = 1000.0;
  if (!fields.has(key)) return;
  const json& value = fields.at(key);
  bool is_good = value.is_array() && value.size() == channels.size();
  for (std::size_t c = 0; is_good && c < channels.size(); ++c) {
    const double number = value[c].is_number() ? value[c].get<double>() : above;
    is_good = number > above && number <= kMost;
    channels[c] = static_cast<float>(number);
  }
  if (!is_good) fields.fail(key, "three numbers above " + std::to_string(above) + ", at most " + std::to_string(kMost));
}

/// The keys that pictures and videos share. What the tower expects of patches must agree with it.
void read_processor(const ConfigFields& fields, const VisionPlan& plan, PictureProcessor& p) {
  fields.expect("patch_size", {plan.patch_size});
  fields.expect("merge_size", {plan.merge_size});
  fields.expect("temporal_patch_size", {plan.temporal_patch_size});
  fields.expect("resample", {3});
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"}) fields.expect(key, {true});
  if (fields.has("rescale_factor")) p.rescale_factor = fields.number("rescale_factor", 0.0, 1.0);
  read_channels(fields, "image_mean", -1000.0, p.mean);
  read_channels(fields, "image_std", 0.0, p.std_dev);
  p.min_pixels = fields.integer_or("min_pixels", p.min_pixels, 1, kMaxPixels);
  p.max_pixels = fields.integer_or("max_pixels", p.max_pixels, 1, kMaxPixels);
  if (fields.has("size")) {
    const ConfigFields size = fields.object("size");
    p.min_pixels = size.integer_or("shortest_edge", p.min_pixels, 1, kMaxPixels);
    p.max_pixels = size.integer_or("longest_edge", p.max_pixels, 1, kMaxPixels);
  }
  if (p.min_pixels <= p.max_pixels) return;
  throw_invalid(fields.where() + ": at least " + std::to_string(p.min_pixels) + " pixels and at most " +
                std::to_string(p.max_pixels) + " (size: shortest_edge and longest_edge); allowed: a least that is not above");
}

void read_video_processor(const ConfigFields& fields, const VisionPlan& plan, VideoProcessor& p) {
  constexpr double kMaxFps = 1000.0;
  read_processor(fields, plan, p.frames);
  fields.expect("cap_pixels_per_frame", {false});
  if (fields.has("fps")) p.fps = fields.number("fps", 0.0, kMaxFps);
  p.min_frames = fields.integer_or("min_frames", p.min_frames, 1, kMaxFrames);
  p.max_frames = fields.integer_or("max_frames", p.max_frames, p.min_frames, kMaxFrames);
}

/// Calls read(fields) with the file of the processor, or the part under `key` of the file that holds all of them.
template <class Fn>
void with_processor(const fs::path& dir, const char* file, const char* key, Fn read) {
  if (is_there(dir / file)) {
    const json object = read_object(dir / file);
    return read(ConfigFields(object, file));
  }
  if (!is_there(dir / "processor_config.json")) return;
  const json object = read_object(dir / "processor_config.json");
  const ConfigFields all(object, "processor_config.json");
  if (all.has(key)) read(all.object(key));
}

PictureProcessor default_processor(const VisionPlan& plan, PictureProcessor p) {
  p.patch_size = plan.patch_size;
  p.merge_size = plan.merge_size;
  p.temporal_patch_size = plan.temporal_patch_size;
  return p;
}

}  // namespace

std::optional<VisionConfig> load_vision_config(const fs::path& checkpoint_dir) {
  const json object = read_object(checkpoint_dir / "config.json");
  const ConfigFields top(object, "config.json");
  if (!top.has("vision_config") || top.boolean_or("language_model_only", false)) return std::nullopt;
  const ConfigFields text = top.has("text_config") ? top.object("text_config") : top;
  VisionConfig config;
  config.plan = read_plan(top.object("vision_config"), text.integer("hidden_size", 1, kMaxDim));
  config.tokens = read_tokens(top);
  config.pictures = default_processor(config.plan, config.pictures);
  config.videos.frames = default_processor(config.plan, config.videos.frames);
  with_processor(checkpoint_dir, "preprocessor_config.json", "image_processor",
                 [&](const ConfigFields& fields) { read_processor(fields, config.plan, config.pictures); });
  with_processor(checkpoint_dir, "video_preprocessor_config.json", "video_processor",
                 [&](const ConfigFields& fields) { read_video_processor(fields, config.plan, config.videos); });
  return config;
}

}  // namespace ferry
