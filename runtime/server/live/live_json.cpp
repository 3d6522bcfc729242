#include "runtime/server/live/live_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {

// Reading and writing share these lists.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Server, version, model, architecture, dtype, transport, ranks,
                                                layers, context_length, time, uptime_s, complaint)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::OpenRequest, number, state, age_s, prompt_tokens, cached_tokens,
                                                computed_tokens, generated_tokens)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Requests, running, waiting, max_running, max_waiting, by_state,
                                                finished, rejected, preemptions, oldest)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Tokens, prompt, cached, computed, generated)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Steps, count, seconds, drafting_seconds, wasted_seconds, max_drafts,
                                                drafts_tried, drafts_right, sequence_steps, sequence_tokens)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Phase, name, steps, rows, sequences, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Recent, window_s, phases, draft_s, core_wait_s, not_running_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Rank, rank, exchanges, rows, bytes_out, bytes_in, round_trip_s,
                                                wait_s, host, address, state, lost, reason, changed_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::MissingWorker, rank, state, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Workers, by_state, missing, covered_by_workers,
                                                covered_by_coordinator, kept_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Experts, count, per_token, balancedness, touched, layers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Transport, layers, bytes_out, bytes_in, wait_s, transport_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Cache, blocks, used_blocks, block_tokens, swap_blocks,
                                                has_prefix_cache, idle_blocks, snapshots, snapshot_bytes, query_tokens,
                                                cached_tokens, evicted_units, evicted_snapshots, misses)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Drift, phase, median_ratio, p99_ratio, is_alarmed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Archive, is_on, steps, bytes, left_out, drift)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Distribution, bounds, counts, sum)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus::Seconds, first_token, between_tokens, queue, total)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveStatus, server, requests, tokens, steps, recent, ranks, workers, experts,
                                                transport, cache, archive, seconds)

namespace {

using nlohmann::json;

constexpr JsonLimits kStatusLimits{.depth = 8, .bytes = int64_t{1} << 20, .values = int64_t{1} << 14};

/// Refuses numbers that no field can hold, before one is converted.
void check_numbers(const json& value, const std::string& name) {
  constexpr double kMax = 9e18;  // below 2^63
  if (value.is_structured()) {
    for (const auto& [key, member] : value.items())
      check_numbers(member, name + (value.is_array() ? "[" + key + "]" : "." + key));
  } else if (value.is_number() && !(std::abs(value.get<double>()) <= kMax)) {
    throw_invalid(name + " is " + shown(value) + "; allowed: numbers of a size up to 9e18");
  }
}

void check(const LiveStatus::Distribution& distribution, const std::string& name, const std::string& source) {
  if (distribution.counts.empty() || distribution.counts.size() == distribution.bounds.size() + 1) return;
  throw_invalid(source + ": seconds." + name + " has " + std::to_string(distribution.counts.size()) + " counts for " +
                std::to_string(distribution.bounds.size()) + " bounds; allowed: one more");
}

}  // namespace

std::string to_json_text(const LiveStatus& status) { return json(status).dump(-1, ' ', false, json::error_handler_t::replace); }

LiveStatus parse_live_status(std::string_view text, const std::string& source) {
  const json object = parse_json(text, source, kStatusLimits);
  if (!object.is_object() || !object.contains("server")) throw_invalid(source + " is no status of Ferry: " + shown(object));
  check_numbers(object, source + ": status");
  try {
    auto status = object.get<LiveStatus>();
    check(status.seconds.first_token, "first_token", source);
    check(status.seconds.between_tokens, "between_tokens", source);
    check(status.seconds.queue, "queue", source);
    check(status.seconds.total, "total", source);
    return status;
  } catch (const json::exception& error) {
    throw_invalid(source + " is no status of Ferry: " + error.what());
  }
}

std::string error_message_of(std::string_view text) {
  try {
    const json object = parse_json(text, "", kStatusLimits);
    return object.at("error").at("message").get<std::string>();
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace ferry
