#include "runtime/server/vllm/engine_facts.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/json.h"
#include "runtime/version.h"

namespace ferry::vllm {
namespace {

namespace wire = ::vllm::grpc::engine;
using nlohmann::json;

constexpr std::chrono::seconds kRatePeriod{1};

/// The first that has `key` as an integer.
std::optional<int32_t> integer_in(std::initializer_list<const json*> objects, const char* key) {
  for (const json* object : objects) {
    const auto found = object->find(key);
    if (found != object->end() && found->is_number_integer()) return found->get<int32_t>();
  }
  return std::nullopt;
}

json object_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : json::object();
}

json read_object(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return json::object();
  json object = read_json_file(path);
  return object.is_object() ? object : json::object();
}

/// What the checkpoint's files say of themselves.
void fill_from_files(const std::filesystem::path& folder, wire::GetModelInfoResponse& info) {
  const json config = read_object(folder / "config.json"), generation = read_object(folder / "generation_config.json");
  const json text = object_in(config, "text_config");
  if (const auto type = config.find("model_type"); type != config.end() && type->is_string())
    info.set_model_type(type->get<std::string>());
  info.set_pad_token_id(integer_in({&generation, &config, &text}, "pad_token_id").value_or(0));
  info.set_bos_token_id(integer_in({&generation, &config, &text}, "bos_token_id").value_or(0));
}

/// As vLLM names them, of requests that say nothing.
std::string defaults_json(const GenerationDefaults& defaults) {
  json object = json::object();
  if (defaults.temperature) object["temperature"] = *defaults.temperature;
  if (defaults.top_p) object["top_p"] = *defaults.top_p;
  if (defaults.top_k) object["top_k"] = *defaults.top_k;
  if (defaults.min_p) object["min_p"] = *defaults.min_p;
  if (defaults.repetition_penalty) object["repetition_penalty"] = *defaults.repetition_penalty;
  if (defaults.max_new_tokens) object["max_tokens"] = *defaults.max_new_tokens;
  return object.dump();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof("2026-01-01T00:00:00+00:00")];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S+00:00", &parts);
  return text;
}

double share(int64_t part, int64_t whole) { return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole); }

int32_t tokens_of(int64_t num_blocks, const EngineLoad& load) {
  return static_cast<int32_t>(std::min<int64_t>(num_blocks * load.kv_block_tokens, std::numeric_limits<int32_t>::max()));
}

}  // namespace

double TokenRate::take(int64_t num_tokens, SteadyClock::time_point now) {
  const std::scoped_lock lock(mutex_);
  if (since_ && now - *since_ < kRatePeriod) return rate_;
  if (since_) rate_ = static_cast<double>(num_tokens - tokens_since_) / std::chrono::duration<double>(now - *since_).count();
  since_ = now;
  tokens_since_ = num_tokens;
  return rate_;
}

wire::GetModelInfoResponse model_facts(const EngineClient& engine, const Settings& settings) {
  const ModelInfo& model = engine.model_info();
  wire::GetModelInfoResponse info;
  info.set_is_generation(true);
  info.set_max_context_length(static_cast<uint32_t>(engine.prompt_bounds().max_tokens + 1));
  info.set_max_req_input_len(static_cast<int32_t>(engine.prompt_bounds().max_tokens));
  info.set_vocab_size(static_cast<uint32_t>(model.vocab_size));
  info.set_supports_vision(model.takes_media);
  info.set_served_model_name(settings.model_names.empty() ? model.name : settings.model_names.front());
  info.add_architectures(model.architecture);
  info.mutable_eos_token_ids()->Add(model.generation.stop_token_ids.begin(), model.generation.stop_token_ids.end());
  info.set_default_sampling_params_json(defaults_json(settings.defaults));
  if (settings.model_path.empty()) return info;
  const std::filesystem::path folder = std::filesystem::absolute(settings.model_path);
  info.set_model_path(folder.string());
  info.set_tokenizer_path(folder.string());
  fill_from_files(folder, info);
  return info;
}

wire::GetServerInfoResponse server_facts(const EngineClient& engine, const ServerLimits& limits) {
  const ModelInfo& model = engine.model_info();
  const EngineLoad load = engine.load();
  wire::GetServerInfoResponse info;
  info.set_server_type("vllm-grpc");
  info.set_data_parallel_size(1);
  info.set_kv_cache_dtype(model.kv_cache_dtype == model.dtype ? "auto" : model.kv_cache_name());
  info.set_block_size(static_cast<int32_t>(load.kv_block_tokens));
  info.set_model_dtype(model.dtype == DType::kBF16 ? "torch.bfloat16" : "torch.float32");
  info.set_max_num_seqs(load.max_running_requests);
  info.set_engine_reasoning_parser("qwen3");
  info.set_constrained_decoding_start("after_reasoning");
  if (!model.takes_media) return info;
  info.set_mm_processor("inprocess");
  info.set_mm_media_ref_schemes(limits.picture_hosts.empty() ? "data" : "http,https,data");
  info.set_mm_item_limits("image=" + std::to_string(limits.pictures));
  return info;
}

wire::GetLoadsResponse load_facts(const EngineLoad& load, double tokens_per_s) {
  wire::GetLoadsResponse response;
  response.set_timestamp(utc_now());
  response.set_version(version_number());
  response.set_dp_rank_count(1);
  wire::SchedulerLoad& told = *response.add_loads();
  told.set_num_running_reqs(load.running_requests);
  told.set_num_waiting_reqs(load.waiting_requests);
  told.set_num_total_reqs(load.running_requests + load.waiting_requests);
  told.set_num_used_tokens(tokens_of(load.kv_blocks_used, load));
  told.set_max_total_num_tokens(tokens_of(load.kv_blocks_total, load));
  told.set_token_usage(share(load.kv_blocks_used, load.kv_blocks_total));
  told.set_gen_throughput(tokens_per_s);
  told.set_cache_hit_rate(share(load.prefix_cache.num_cached_tokens, load.prefix_cache.num_query_tokens));
  told.set_utilization(share(load.running_requests, load.max_running_requests));
  told.set_max_running_requests(load.max_running_requests);
  return response;
}

}  // namespace ferry::vllm
