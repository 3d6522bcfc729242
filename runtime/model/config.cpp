#include "runtime/model/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/is_there.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/base/text_file.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/model/architectures/architecture.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/source_config.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxIds = 1024;  // of one list, each compared with all others

json parse_object(const std::string& text, const std::filesystem::path& path) {
  json value = parse_json(text, path.string(), {});
  if (!value.is_object()) throw_invalid(path.string() + " is not a JSON object");
  return value;
}

void append_ids(const ConfigFields& from, const char* key, int64_t vocab_size, std::vector<TokenId>& ids) {
  if (!from.has(key)) return;
  const json& value = from.at(key);
  if (value.is_array() && value.size() > kMaxIds) from.fail(key, "at most " + std::to_string(kMaxIds) + " token ids");
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab_size) {
      from.fail(key, "token ids from 0 to " + std::to_string(vocab_size - 1));
    }
    const auto token = id.get<TokenId>();
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  }
}

/// Of a checkpoint that sees: what a prompt has around and in the place of a picture.
std::vector<NamedTokenId> read_placeholders(const ConfigFields& top, int64_t vocab_size) {
  std::vector<NamedTokenId> placeholders;
  for (const char* key : {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}) {
    std::vector<TokenId> ids;
    append_ids(top, key, vocab_size, ids);
    for (const TokenId id : ids) placeholders.push_back({.name = key, .id = id});
  }
  return placeholders;
}

const Architecture& read_architecture(const ConfigFields& top) {
  const json& type = top.at("model_type");
  const Architecture* architecture = type.is_string() ? find_architecture(type.get_ref<const std::string&>()) : nullptr;
  if (architecture == nullptr) top.fail("model_type", architecture_list());
  return *architecture;
}

/// "qwen3_5_moe or qwen3_5_moe_text"
std::string type_names(const Architecture& a) {
  return a.model_type + (a.text_model_type != nullptr ? std::string(" or ") + a.text_model_type : "");
}

/// The fields of text_config, whose model_type is one of the architecture's.
ConfigFields read_text(const ConfigFields& top, const Architecture& architecture) {
  if (!top.has("text_config")) return top;
  if (!top.at("text_config").is_object()) top.fail("text_config", "an object");
  const ConfigFields text(top.at("text_config"), "config.json");
  if (!text.has("model_type")) return text;
  const json& type = text.at("model_type");
  if (!type.is_string() || find_architecture(type.get_ref<const std::string&>()) != &architecture)
    text.fail("model_type", type_names(architecture));
  return text;
}

std::string read_class_name(const ConfigFields& top) {
  if (!top.has("architectures")) return "";
  const json& names = top.at("architectures");
  return names.is_array() && !names.empty() && names[0].is_string() ? names[0].get<std::string>() : "";
}

/// A GGUF file, or a folder of nothing else.
void refuse_gguf(const std::filesystem::path& path) {
  std::error_code error;
  bool is_gguf = path.extension() == ".gguf";
  if (!is_gguf && std::filesystem::is_directory(path, error) && !std::filesystem::exists(path / "config.json", error)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) is_gguf |= entry.path().extension() == ".gguf";
  }
  if (is_gguf) {
    throw_invalid(
        "--model: " + path.string() +
        " is GGUF, which is not read; allowed: the folder of safetensors that it was made of (--quantize w4a8 or w8a8 "
        "makes the weights as small)");
  }
}

/// Makes the networks of a model that has no other ones slices. Where there are mixtures too, these are shared out.
void slice_networks(ModelConfig& config) {
  if (config.num_layers_of(Ffn::kDense) != config.num_layers()) return;
  constexpr int64_t kWholeRows = 128;  // columns that products take under one scale where the checkpoint has one for a row
  const SourceFormat& source = config.source;
  int64_t block_cols = source.kind == SourceFormat::Kind::kFp8Block ? source.block_cols : source.group_size;
  if (source.kind == SourceFormat::Kind::kPlain) block_cols = 1;
  if (block_cols == 0) block_cols = kWholeRows;
  const std::optional<MoePlan> slices = slice(config.dense, block_cols);
  if (!slices) return;
  config.moe = *slices;
  for (LayerPlan& layer : config.layers) layer.ffn = Ffn::kMixtureOfExperts;
}

DType read_dtype(const ConfigFields& top, const ConfigFields& text) {
  for (const ConfigFields* fields : {&text, &top}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (!fields->has(key)) continue;
      fields->expect(key, {"float32", "bfloat16", "float16"});
      return fields->at(key) == "float32" ? DType::kF32 : DType::kBF16;
    }
  }
  return DType::kBF16;
}

constexpr const char* kSamplingKeys[] = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens"};

void read_sampling(const ConfigFields& fields, GenerationDefaults& g) {
  if (fields.has("temperature")) g.temperature = fields.number("temperature", -1e-9, 1e6);
  if (fields.has("top_p")) g.top_p = fields.number("top_p", 0.0, 1.0);
  if (fields.has("top_k")) g.top_k = fields.integer("top_k", 0, kMaxDim);
  if (fields.has("min_p")) g.min_p = fields.number("min_p", -1e-9, 1.0);
  if (fields.has("repetition_penalty")) g.repetition_penalty = fields.number("repetition_penalty", 0.0, 1e6);
  if (fields.has("max_new_tokens")) g.max_new_tokens = fields.integer("max_new_tokens", 1, int64_t{1} << 30);
}

}  // namespace

int64_t ModelConfig::num_layers_of(Mixer mixer) const {
  return std::count_if(layers.begin(), layers.end(), [mixer](const LayerPlan& layer) { return layer.mixer == mixer; });
}

int64_t ModelConfig::num_layers_of(Ffn ffn) const {
  return std::count_if(layers.begin(), layers.end(), [ffn](const LayerPlan& layer) { return layer.ffn == ffn; });
}

namespace {

GenerationDefaults generation_defaults(const json& object, int64_t vocab_size) {
  const ConfigFields fields(object, "generation_config.json");
  GenerationDefaults g;
  append_ids(fields, "eos_token_id", vocab_size, g.stop_token_ids);
  g.do_sample = fields.boolean_or("do_sample", false);
  read_sampling(fields, g);
  return g;
}

}  // namespace

GenerationDefaults read_generation_config(const std::filesystem::path& path, int64_t vocab_size) {
  return generation_defaults(parse_object(read_text_file(path), path), vocab_size);
}

void override_sampling(const std::string& text, const std::string& what, GenerationDefaults& defaults) {
  const json object = parse_json(text, what, {.depth = 4, .bytes = 1 << 16, .values = 64});
  if (!object.is_object()) throw_invalid(what + ": " + shown(object) + "; allowed: a JSON object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(std::begin(kSamplingKeys), std::end(kSamplingKeys), key) != std::end(kSamplingKeys)) continue;
    std::string names;
    for (const char* name : kSamplingKeys) names += (names.empty() ? "" : ", ") + std::string(name);
    throw_invalid(what + ": " + in_quotes(key) + " is unknown; allowed: " + names);
  }
  read_sampling(ConfigFields(object, what), defaults);
}

ModelConfig load_config(const std::filesystem::path& checkpoint_dir) {
  refuse_gguf(checkpoint_dir);
  if (std::error_code error; !std::filesystem::is_directory(checkpoint_dir, error)) {
    throw Error(ErrorCode::kNotFound, "--model: '" + checkpoint_dir.string() + "' is not a checkpoint folder");
  }
  const json object = parse_object(read_checked_file(checkpoint_dir, kConfigFile), checkpoint_dir / kConfigFile);
  const ConfigFields top(object, "config.json");
  const Architecture& architecture = read_architecture(top);
  const ConfigFields text = read_text(top, architecture);
  text.expect("hidden_act", {"silu"});

  ModelConfig config;
  config.architecture = &architecture;
  config.source = read_source_format(top);
  config.name = std::filesystem::weakly_canonical(checkpoint_dir).filename().string();
  config.class_name = read_class_name(top);
  config.dtype = read_dtype(top, text);
  config.vocab_size = text.integer("vocab_size", 1, kMaxDim);
  config.hidden_dim = text.integer("hidden_size", 1, kMaxDim);
  config.max_context = text.integer_or("max_position_embeddings", 32768, 1, int64_t{1} << 30);
  config.norm.eps = text.has("rms_norm_eps") ? static_cast<float>(text.number("rms_norm_eps", 0.0, 1.0)) : 1e-6F;
  config.tie_word_embeddings = top.boolean_or("tie_word_embeddings", text.boolean_or("tie_word_embeddings", false));
  architecture.read(text, config);
  slice_networks(config);
  const std::filesystem::path generation = checkpoint_dir / kGenerationConfigFile;
  if (is_there(generation)) {
    const json defaults = parse_object(read_checked_file(checkpoint_dir, kGenerationConfigFile), generation);
    config.generation = generation_defaults(defaults, config.vocab_size);
  }
  if (config.generation.stop_token_ids.empty())
    append_ids(text, "eos_token_id", config.vocab_size, config.generation.stop_token_ids);
  config.placeholders = read_placeholders(top, config.vocab_size);
  return config;
}

}  // namespace ferry
