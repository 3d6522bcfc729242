#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/model/architectures/architecture.h"
#include "runtime/model/footprint.h"
#include "runtime/model/weights_loader.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr std::array kQuantizations{"none", "native", "w8a8", "w4a8"};
constexpr std::array<int64_t, 6> kWorkers{0, 1, 2, 3, 5, 8};
constexpr double kGb = 1e-9, kMillion = 1e-6;

/// What `--quantize name` makes of the model, or why it would be refused. Looks at headers, and at vectors such as norms.
struct Run {
  Quantization quantization;
  std::string refused;
};

Run plan_run(const ModelConfig& config, const Checkpoint& checkpoint, const std::filesystem::path& dir, const char* name) {
  try {
    const WeightPlan plan = plan_weights(dir, parse_quantization(name));
    const Quantization quantization = resolve_quantization(checkpoint, config, plan.quantization);
    TensorReader reader(checkpoint, config.dtype, /*check_finite=*/false, plan.in_panels);
    find_quantized(checkpoint, config, quantization, reader);
    return {.quantization = quantization, .refused = ""};
  } catch (const Error& error) {
    return {.quantization = {}, .refused = error.what()};
  }
}

/// Of all tensors, those that are skipped included.
ordered_json formats_json(const Checkpoint& checkpoint) {
  std::map<std::string, int64_t> bytes;
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& tensor = *checkpoint.find(name);
    bytes[stored_type_name(tensor.dtype)] += tensor.bytes;
  }
  return bytes;
}

ordered_json layers_json(const ModelConfig& config) {
  ordered_json layers{{"total", config.num_layers()}};
  for (const Mixer mixer : {Mixer::kGatedDelta, Mixer::kAttention, Mixer::kShortConv})
    if (config.num_layers_of(mixer) > 0) layers[mixer_name(mixer)] = config.num_layers_of(mixer);
  if (config.num_layers_of(Ffn::kDense) > 0) layers["dense"] = config.num_layers_of(Ffn::kDense);
  if (config.num_layers_of(Ffn::kMixtureOfExperts) > 0)
    layers["mixture_of_experts"] = config.num_layers_of(Ffn::kMixtureOfExperts);
  return layers;
}

/// What the model holds, and what ranks need for it.
ordered_json describe(const std::filesystem::path& dir) {
  const ModelConfig config = load_config(dir);
  const Checkpoint checkpoint = Checkpoint::open(dir);
  const bool is_tied = config.tie_word_embeddings && checkpoint.find("lm_head.weight") == nullptr;
  int64_t total = embedding_parameters(config), active = config.hidden_dim;
  ordered_json parts{{"embedding", embedding_parameters(config)}};
  for (const PartFootprint& part : decoder_footprint(config, {}, config.dtype)) {
    parts[part_name(part.part)] = part.parameters;
    total += is_tied && part.part == Part::kHead ? 0 : part.parameters;
    active += part.active_parameters;
  }
  ordered_json runs = ordered_json::array();
  for (const char* name : kQuantizations) {
    if (config.source.kind == SourceFormat::Kind::kPlain && std::string_view(name) == "native") continue;
    const auto& [quantization, refused] = plan_run(config, checkpoint, dir, name);
    ordered_json ranks = ordered_json::array();
    for (const int64_t workers : kWorkers) {
      if (!refused.empty() || workers > config.moe.num_experts) continue;
      const RankFootprint bytes = rank_footprint(config, quantization, config.dtype, workers);
      ranks.push_back({{"workers", workers},
                       {"coordinator_bytes", static_cast<int64_t>(bytes.coordinator_bytes)},
                       {"worker_bytes", static_cast<int64_t>(bytes.worker_bytes)}});
    }
    runs.push_back(
        {{"quantize", name}, {"refused", refused.empty() ? ordered_json() : ordered_json(refused)}, {"ranks", ranks}});
  }
  return {{"name", config.name},
          {"architecture", config.class_name},
          {"model_type", config.architecture->model_type},
          {"dtype", dtype_name(config.dtype)},
          {"layers", layers_json(config)},
          {"experts", config.moe.num_experts},
          {"experts_per_token", config.moe.top_k},
          {"max_context", config.max_context},
          {"parameters", {{"total", total}, {"active", active}, {"parts", parts}}},
          {"stored_bytes", formats_json(checkpoint)},
          {"runs", runs}};
}

void print_run(const ordered_json& run) {
  std::printf("\n--quantize %s", run["quantize"].get<std::string>().c_str());
  if (!run["refused"].is_null()) {
    std::printf(": refused, %s\n", run["refused"].get<std::string>().c_str());
    return;
  }
  std::printf("\n%10s %16s %18s\n", "workers", "coordinator, GB", "largest worker, GB");
  for (const ordered_json& rank : run["ranks"]) {
    std::printf("%10lld %16.3f %18.3f\n", rank["workers"].get<long long>(), rank["coordinator_bytes"].get<double>() * kGb,
                rank["worker_bytes"].get<double>() * kGb);
  }
}

void print(const ordered_json& model) {
  const ordered_json& parameters = model["parameters"];
  std::printf("%s: %s (%s), %s, context %lld\n", in_quotes(model["name"].get<std::string>()).c_str(),
              in_quotes(model["architecture"].get<std::string>()).c_str(), model["model_type"].get<std::string>().c_str(),
              model["dtype"].get<std::string>().c_str(), model["max_context"].get<long long>());
  std::string layers;
  for (const auto& [kind, count] : model["layers"].items()) layers += (layers.empty() ? "" : ", ") + kind + " " + count.dump();
  std::printf("layers: %s\n", layers.c_str());
  std::printf("experts: %lld a layer, %lld for a token\n", model["experts"].get<long long>(),
              model["experts_per_token"].get<long long>());
  std::printf("parameters, millions: %.1f, of which a token passes %.1f\n", parameters["total"].get<double>() * kMillion,
              parameters["active"].get<double>() * kMillion);
  for (const auto& [part, count] : parameters["parts"].items())
    std::printf("%18s %12.1f\n", part.c_str(), count.get<double>() * kMillion);
  std::printf("stored, GB:\n");
  for (const auto& [type, bytes] : model["stored_bytes"].items())
    std::printf("%18s %12.3f\n", type.c_str(), bytes.get<double>() * kGb);
  std::printf(
      "\nPacked weights of a rank; --memory (KV cache, states) and the embedding, which stays in its file, come on top.\n");
  for (const ordered_json& run : model["runs"]) print_run(run);
}

}  // namespace

int run_inspect(const Options& options) {
  const ordered_json model = describe(options.engine.model);
  if (options.inspect.json) {
    std::printf("%s\n", model.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
  } else {
    print(model);
  }
  return 0;
}

}  // namespace ferry
