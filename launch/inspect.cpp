#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kernels/argmax_screen.h"
#include "launch/commands.h"
#include "launch/inspect_verify.h"
#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/loaded_vision.h"
#include "runtime/model/architectures/architecture.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/model/footprint.h"
#include "runtime/model/weights_loader.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr std::array<int64_t, 8> kWorkers{0, 1, 2, 3, 4, 5, 7, 8};

/// What --quantize makes of the model, or why it would be refused. Looks at headers, and at vectors such as norms.
struct Run {
  std::string name;
  Quantization quantization;
  std::string refused;
};

/// The dtype of a run without --dtype is the checkpoint's.
DType run_dtype(const EngineOptions& options, const ModelConfig& config) { return options.dtype.value_or(config.dtype); }

Run plan_run(const ModelConfig& config, const Checkpoint& checkpoint, const EngineOptions& options,
             const std::optional<Quantization>& asked) {
  Run run{.name = quantization_name(asked.value_or(Quantization{})), .quantization = {}, .refused = ""};
  try {
    const WeightPlan plan = plan_weights(options.model, asked);
    if (!asked) run.name = quantization_name(plan.quantization);
    run.quantization = resolve_quantization(checkpoint, config, plan.quantization);
    TensorReader reader(checkpoint, run_dtype(options, config), /*check_finite=*/false, plan.in_panels);
    find_quantized(checkpoint, config, run.quantization, reader);
  } catch (const Error& error) {
    run.refused = error.what();
  }
  return run;
}

/// The one that is asked for or packed, or those that have a name of one word.
std::vector<Run> plan_runs(const ModelConfig& config, const Checkpoint& checkpoint, const EngineOptions& options) {
  if (options.quantization || plan_weights(options.model, std::nullopt).in_panels)
    return {plan_run(config, checkpoint, options, options.quantization)};
  std::vector<Run> runs;
  for (const char* name : {"none", "native", "w8a8", "w4a8"}) {
    if (config.source.kind == SourceFormat::Kind::kPlain && std::string_view(name) == "native") continue;
    runs.push_back(plan_run(config, checkpoint, options, parse_quantization(name)));
  }
  return runs;
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

/// Of tensors that no run reads.
int64_t skipped_bytes(const Checkpoint& checkpoint, const ModelConfig& config, bool has_vision) {
  int64_t bytes = 0;
  for (const std::string_view name : checkpoint.names()) {
    const bool is_read =
        !is_of_other_part(name) || (config.mtp && name.starts_with("mtp.")) || (has_vision && is_of_vision_tower(name));
    bytes += is_read ? 0 : checkpoint.find(name)->bytes;
  }
  return bytes;
}

/// What the coordinator keeps for pictures beside the cache of --picture-cache; or why it takes none.
ordered_json vision_json(const Options& options, const Checkpoint& checkpoint, DType dtype) {
  std::string complaint;
  const std::optional<VisionConfig> vision = find_vision(options.engine.model, checkpoint, complaint);
  if (!vision) return {{"lacks", complaint}};
  const int64_t max_patches = options.engine.media.max_tokens * vision->plan.merged_patches();
  return {{"weight_bytes", vision_bytes(checkpoint, dtype)},
          {"buffer_bytes", MediaEncoder::max_bytes(vision->plan, dtype, {.max_patches = max_patches})}};
}

ordered_json layers_json(const ModelConfig& config) {
  ordered_json layers{{"total", config.num_layers()}};
  for (const Mixer mixer : kMixers)
    if (config.num_layers_of(mixer) > 0) layers[mixer_name(mixer)] = config.num_layers_of(mixer);
  const int64_t num_dense = config.is_dense() ? config.num_layers() : config.num_layers_of(Ffn::kDense);
  if (num_dense > 0) layers["dense"] = num_dense;
  if (num_dense < config.num_layers()) layers["mixture_of_experts"] = config.num_layers() - num_dense;
  return layers;
}

/// A tied embedding is the head, too.
ordered_json parameters_json(const ModelConfig& config, bool is_tied) {
  int64_t total = embedding_parameters(config), active = is_tied ? 0 : config.hidden_dim;
  ordered_json parts{{"embedding", embedding_parameters(config)}};
  for (const PartFootprint& part : decoder_footprint(config, {}, config.dtype)) {
    const bool is_slices = config.is_dense() && part.part == Part::kExperts;
    parts[part_name(is_slices ? Part::kDenseFfn : part.part)] = part.parameters;
    total += is_tied && part.part == Part::kHead ? 0 : part.parameters;
    active += part.active_parameters;
  }
  return {{"total", total}, {"active", active}, {"tied", is_tied}, {"parts", parts}};
}

ordered_json run_json(const Run& run, const ModelConfig& config, const Options& options) {
  ordered_json ranks = ordered_json::array();
  std::vector<int64_t> counts(kWorkers.begin(), kWorkers.end());
  if (options.inspect.workers) counts = {*options.inspect.workers};
  for (const int64_t workers : counts) {
    if (!run.refused.empty() || workers > config.moe.num_experts) continue;
    const RankFootprint bytes = rank_footprint(config, run.quantization, run_dtype(options.engine, config), workers);
    ranks.push_back({{"workers", workers},
                     {"coordinator_bytes", static_cast<int64_t>(bytes.coordinator_bytes)},
                     {"worker_bytes", static_cast<int64_t>(bytes.worker_bytes)}});
    if (!config.mtp) continue;
    const RankFootprint mtp = mtp_footprint(config, run.quantization, run_dtype(options.engine, config), workers);
    ranks.back()["mtp_coordinator_bytes"] = static_cast<int64_t>(mtp.coordinator_bytes);
    ranks.back()["mtp_worker_bytes"] = static_cast<int64_t>(mtp.worker_bytes);
  }
  ordered_json json{
      {"quantize", run.name}, {"refused", run.refused.empty() ? ordered_json() : ordered_json(run.refused)}, {"ranks", ranks}};
  if (run.refused.empty() && !run.quantization.lm_head && run_dtype(options.engine, config) == DType::kBF16)
    json["lm_head_screen_bytes"] = argmax_screen_bytes(config.vocab_size, config.hidden_dim);
  return json;
}

/// What the coordinator keeps of sequences, within --memory.
ordered_json cache_json(const ModelConfig& config, const EngineOptions& options) {
  const DType dtype = run_dtype(options, config), kv_dtype = kv_cache_dtype(options.kv_cache_dtype, dtype);
  const int64_t of_token = KvCache::bytes_per_block(kv_cache_shape(config, kv_dtype, 1));
  const int64_t of_sequence = RecurrentState::bytes_per_slot(recurrent_state_shape(config, dtype));
  return {{"kv_dtype", kv_dtype_name(kv_dtype)},
          {"bytes_per_token", of_token},
          {"bytes_per_sequence", of_sequence},
          {"bytes_of_context", of_sequence + config.max_context * of_token}};
}

/// What the model holds, and what ranks need for it.
ordered_json describe(const Options& options) {
  ModelConfig config = load_config(options.engine.model);
  if (options.inspect.workers.value_or(0) > config.moe.num_experts) {
    throw_invalid("--workers is " + std::to_string(*options.inspect.workers) + "; allowed: 0 to " +
                  std::to_string(config.moe.num_experts) + ", as many as there are " +
                  (config.is_dense() ? "slices of its networks" : "experts"));
  }
  const Checkpoint checkpoint = Checkpoint::open(options.engine.model);
  config.mtp = lacks_mtp(checkpoint, config, {}).empty();
  const ordered_json vision = vision_json(options, checkpoint, run_dtype(options.engine, config));
  ordered_json runs = ordered_json::array();
  for (const Run& run : plan_runs(config, checkpoint, options.engine)) runs.push_back(run_json(run, config, options));
  return {{"name", config.name},
          {"architecture", config.class_name},
          {"model_type", config.architecture->model_type},
          {"dtype", dtype_name(config.dtype)},
          {"layers", layers_json(config)},
          {"experts", config.is_dense() ? 0 : config.moe.num_experts},
          {"experts_per_token", config.is_dense() ? 0 : config.moe.top_k},
          {"max_context", config.max_context},
          {"parameters", parameters_json(config, config.tie_word_embeddings && checkpoint.find("lm_head.weight") == nullptr)},
          {"stored_as", config.source.describe()},
          {"stored_bytes", formats_json(checkpoint)},
          {"has_mtp", config.mtp},
          {"skipped_bytes", skipped_bytes(checkpoint, config, !vision.contains("lacks"))},
          {"vision", vision},
          {"cache", cache_json(config, options.engine)},
          {"runs", runs}};
}

bool is_refused(const ordered_json& run) { return !run["refused"].is_null(); }

/// "1.611 GB", "12.7 MB", "3.1 kB".
std::string size_text(const ordered_json& value) {
  constexpr std::array kUnits{"GB", "MB", "kB"};
  double size = value.get<double>() * 1e-9;
  std::size_t unit = 0;
  for (; size < 0.1 && unit + 1 < kUnits.size(); ++unit) size *= 1000;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", size < 100 && unit == 0 ? 3 : 1, size, kUnits[unit]);
  return text.data();
}

void print_run(const ordered_json& run) {
  std::printf("\n--quantize %s", run["quantize"].get<std::string>().c_str());
  if (is_refused(run)) {
    std::printf(": refused, %s\n", run["refused"].get<std::string>().c_str());
    return;
  }
  std::printf("\n%10s %16s %18s\n", "workers", "coordinator", "largest worker");
  for (const ordered_json& rank : run["ranks"]) {
    const bool has_workers = rank["workers"] != 0;
    std::string mtp;
    if (rank.contains("mtp_worker_bytes")) mtp = "   MTP layer + " + size_text(rank["mtp_coordinator_bytes"]);
    if (!mtp.empty() && has_workers) mtp += ", + " + size_text(rank["mtp_worker_bytes"]);
    std::printf("%10lld %16s %18s%s\n", rank["workers"].get<long long>(), size_text(rank["coordinator_bytes"]).c_str(),
                has_workers ? size_text(rank["worker_bytes"]).c_str() : "-", mtp.c_str());
  }
  if (run.contains("lm_head_screen_bytes"))
    std::printf("--lm-head-screen: coordinator + %s\n", size_text(run["lm_head_screen_bytes"]).c_str());
}

void print_parameters(const ordered_json& parameters) {
  constexpr double kMillion = 1e-6;
  std::printf("parameters, millions: %.1f, of which a token passes %.1f\n", parameters["total"].get<double>() * kMillion,
              parameters["active"].get<double>() * kMillion);
  for (const auto& [part, count] : parameters["parts"].items()) {
    std::printf("%18s %12.2f%s\n", part.c_str(), count.get<double>() * kMillion,
                part == "head" && parameters["tied"] == true ? ", the embedding once more" : "");
  }
}

void print_vision(const ordered_json& vision) {
  if (vision.contains("lacks")) {
    std::printf("pictures: none, %s\n", vision["lacks"].get<std::string>().c_str());
    return;
  }
  std::printf(
      "pictures: %s of weights on the coordinator and up to %s of buffers (--picture-tokens, %lld unless said; 0: neither)\n",
      size_text(vision["weight_bytes"]).c_str(), size_text(vision["buffer_bytes"]).c_str(),
      static_cast<long long>(MediaOptions{}.max_tokens));
}

void print_model(const ordered_json& model) {
  std::printf("%s: %s (%s), %s, context %lld\n", in_quotes(model["name"].get<std::string>()).c_str(),
              in_quotes(model["architecture"].get<std::string>()).c_str(), model["model_type"].get<std::string>().c_str(),
              model["dtype"].get<std::string>().c_str(), model["max_context"].get<long long>());
  std::string layers;
  for (const auto& [kind, count] : model["layers"].items()) layers += (layers.empty() ? "" : ", ") + kind + " " + count.dump();
  std::printf("layers: %s\n", layers.c_str());
  if (model["experts"] != 0) {
    std::printf("experts: %lld a layer, %lld for a token\n", model["experts"].get<long long>(),
                model["experts_per_token"].get<long long>());
  }
  print_parameters(model["parameters"]);
  std::printf("stored: %s\n", model["stored_as"].get<std::string>().c_str());
  for (const auto& [type, bytes] : model["stored_bytes"].items())
    std::printf("%18s %12s\n", type.c_str(), size_text(bytes).c_str());
  if (model["skipped_bytes"] != 0) std::printf("%18s %12s\n", "of it skipped", size_text(model["skipped_bytes"]).c_str());
  print_vision(model["vision"]);
  std::printf(
      "cache: %s a token (%s), %s a sequence; one of %lld tokens %s\n\n"
      "Packed weights of a rank. On top come --memory for the cache (2 GiB unless said), buffers for the rows of a step\n"
      "(--token-budget) and the embedding, which stays in its file; an MTP layer only where drafts are wanted (--speculate).\n"
      "With --device all of it has to fit the memory of a GPU (ferry devices), the embedding too.\n",
      size_text(model["cache"]["bytes_per_token"]).c_str(), model["cache"]["kv_dtype"].get<std::string>().c_str(),
      size_text(model["cache"]["bytes_per_sequence"]).c_str(), model["max_context"].get<long long>(),
      size_text(model["cache"]["bytes_of_context"]).c_str());
  for (const ordered_json& run : model["runs"]) print_run(run);
}

}  // namespace

/// 2 if nothing that was looked at can run.
int run_inspect(const Options& options) {
  if (options.inspect.verify) return run_verify(options);
  const ordered_json model = describe(options);
  if (options.inspect.json) {
    std::printf("%s\n", model.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
  } else {
    print_model(model);
  }
  const ordered_json& runs = model["runs"];
  return std::all_of(runs.begin(), runs.end(), is_refused) ? 2 : 0;
}

}  // namespace ferry
