#include "runtime/server/metrics/metrics_route.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "runtime/base/json.h"
#include "runtime/server/http/call.h"
#include "runtime/server/http/router.h"
#include "runtime/server/metrics/engine_metrics.h"
#include "runtime/server/metrics/http_metrics.h"
#include "tests/support/sample_report.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

using test::sample_report;

/// What /metrics answers for `report`.
HttpResponse ask(const EngineReport& report, const HttpMetrics& http) {
  HttpRouter router;
  add_metrics_route(
      router, [&] { return report; }, "demo", http);
  const auto call = std::make_shared<HttpCall>(HttpCallForm{}, [] {});
  router.find("GET", "/metrics")->handler({}, HttpReply(call));
  std::string bytes;
  return call->take(bytes).response.value();
}

HttpMetrics& sample_http() {
  static HttpMetrics http;
  static const bool is_filled = [] {
    http.add({.route = "/v1/completions", .method = "POST", .status = 200, .seconds = 0.3});
    http.add({.route = "/v1/completions", .method = "POST", .status = 404, .seconds = 3});
    http.add({.route = "/v1/completions", .method = "POST", .status = 201, .seconds = 0.05});
    for (const char* route : {"/metrics", "/health", "/ping", "/load", "/version", "/status.json", "/"})
      http.add({.route = route, .method = "GET", .status = 200, .seconds = 0});
    return true;
  }();
  EXPECT_TRUE(is_filled);
  return http;
}

std::string sample_text() { return ask(sample_report(), sample_http()).body; }

/// Kinds by name.
std::map<std::string, std::string> kinds_of(const std::string& text) {
  std::map<std::string, std::string> kinds;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, what, name, kind;
    if (words >> hash >> what >> name >> kind && hash == "#" && what == "TYPE") {
      EXPECT_TRUE(kinds.emplace(name, kind).second) << name << " begins twice";
    }
  }
  return kinds;
}

/// Names of all samples.
std::set<std::string> names_of(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#")) names.insert(line.substr(0, line.find_first_of("{ ")));
  return names;
}

TEST(Metrics, AreOfferedAsText) {
  const HttpResponse response = ask(sample_report(), sample_http());
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/plain; version=0.0.4; charset=utf-8");
  HttpRouter router;
  add_metrics_route(router, sample_report, "demo", sample_http());
  EXPECT_EQ(router.find("GET", "/metrics")->guard, HttpGuard::kNoKey);
}

TEST(Metrics, HaveTheNamesAndKindsOfVllm) {
  const std::map<std::string, std::string> kinds = kinds_of(sample_text());
  const auto expect = [&](const char* kind, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto found = kinds.find(name);
      EXPECT_EQ(found == kinds.end() ? "none" : found->second, kind) << name;
    }
  };
  expect("gauge", {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason",
                   "vllm:kv_cache_usage_perc", "vllm:cache_config_info"});
  expect("counter", {"vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total",
                     "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_by_source_total",
                     "vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_cached_by_source_total",
                     "vllm:request_success_total", "vllm:admission_rejections_total", "vllm:spec_decode_num_drafts_total",
                     "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total",
                     "vllm:spec_decode_num_accepted_tokens_per_pos_total", "http_requests_total"});
  expect("histogram",
         {"vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:request_max_num_generation_tokens",
          "vllm:request_params_max_tokens", "vllm:request_prefill_kv_computed_tokens", "vllm:iteration_tokens_total",
          "vllm:request_params_n", "vllm:request_num_preemptions", "vllm:time_to_first_token_seconds",
          "vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
          "vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds", "vllm:request_prefill_time_seconds",
          "vllm:request_decode_time_seconds", "http_request_duration_seconds"});
}

TEST(Metrics, SamplesHaveTheirLabels) {
  const std::string text = sample_text();
  const std::string engine = "model_name=\"demo\",engine=\"0\"";
  for (const std::string& line : {
           "vllm:num_requests_running{" + engine + "} 3",
           "vllm:num_requests_waiting_by_reason{" + engine + ",reason=\"capacity\"} 2",
           "vllm:num_requests_waiting_by_reason{" + engine + ",reason=\"deferred\"} 0",
           "vllm:kv_cache_usage_perc{" + engine + "} 0.25",
           "vllm:num_preemptions_total{" + engine + "} 4",
           "vllm:prompt_tokens_by_source_total{" + engine + ",source=\"local_compute\"} 70",
           "vllm:prompt_tokens_by_source_total{" + engine + ",source=\"local_cache_hit\"} 30",
           "vllm:prompt_tokens_by_source_total{" + engine + ",source=\"external_kv_transfer\"} 0",
           "vllm:prompt_tokens_cached_by_source_total{" + engine + ",source=\"device\"} 30",
           "vllm:prompt_tokens_cached_by_source_total{" + engine + ",source=\"external_unspecified\"} 0",
           "vllm:prefix_cache_queries_total{" + engine + "} 110",
           "vllm:prefix_cache_hits_total{" + engine + "} 40",
           "ferry:prefix_cache_requests_total{" + engine + ",miss_reason=\"salt\"} 5",
           "ferry:prefix_cache_file_dropped_records_total{" + engine + ",reason=\"unreadable\"} 0",
           "vllm:request_success_total{" + engine + ",finished_reason=\"abort\"} 2",
           "vllm:request_success_total{" + engine + ",finished_reason=\"repetition\"} 0",
           std::string("vllm:admission_rejections_total{model_name=\"demo\",reason=\"max_num_queued_reqs\"} 6"),
           "vllm:spec_decode_num_drafts_total{" + engine + "} 1",
           "vllm:spec_decode_num_draft_tokens_total{" + engine + "} 2",
           "vllm:spec_decode_num_accepted_tokens_per_pos_total{" + engine + ",position=\"0\"} 1",
           "vllm:spec_decode_num_accepted_tokens_per_pos_total{" + engine + ",position=\"1\"} 0",
           "ferry:transport_bytes_total{" + engine + ",direction=\"in\"} 77",
           "ferry:workers{" + engine + ",state=\"healthy\"} 1",
           "ferry:workers{" + engine + ",state=\"suspect\"} 0",
           "ferry:workers{" + engine + ",state=\"masked\"} 1",
           "ferry:worker_info{" + engine +
               ",rank=\"1\",host=\"node1\",address=\"10.0.0.5:4711\",state=\"healthy\",lost=\"no\"} 1",
           "ferry:worker_info{" + engine + ",rank=\"2\",host=\"\",address=\"\",state=\"masked\",lost=\"yes\"} 1",
           "ferry:worker_changes_total{" + engine + ",state=\"masked\"} 1",
           "ferry:covered_rows_total{" + engine + ",by=\"worker\"} 5",
           "ferry:covered_rows_total{" + engine + ",by=\"coordinator\"} 6",
           "ferry:kept_expert_bytes{" + engine + "} 7",
           "ferry:expert_fixed_cost_rows{" + engine + "} 9",
           "ferry:kept_steps{" + engine + "} 31",
           "ferry:kept_step_bytes{" + engine + "} 32",
           "ferry:kept_steps_left_out_total{" + engine + "} 33",
           "ferry:step_drift_ratio{" + engine + ",phase=\"decode\",quantile=\"0.5\"} 1.5",
           "ferry:step_drift_ratio{" + engine + ",phase=\"decode\",quantile=\"0.99\"} 2.5",
           "ferry:step_drift_alarm{" + engine + ",phase=\"decode\"} 1",
           "ferry:step_drift_alarm{" + engine + ",phase=\"prefill\"} 0",
           "ferry:step_drift_alarms_total{" + engine + ",phase=\"decode\"} 2",
           "ferry:requests_lost_slot_total{" + engine + "} 8",
           "ferry:fair_accounts{" + engine + "} 9",
           "ferry:prefill_rows_limit{" + engine + "} 448",
           std::string("http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 2"),
           std::string("http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} 1"),
           std::string("http_request_duration_seconds_count{handler=\"/v1/completions\",method=\"POST\"} 3"),
       })
    EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line;
  EXPECT_EQ(text.find("/health"), std::string::npos) << "what watches is not counted";
}

/// Bounds of a histogram of the engine, "1.0,2.5,…".
std::string bounds_of(const std::string& text, const std::string& name) {
  const std::regex bucket("\n" + name + "_bucket\\{[^}]*le=\"([^\"]*)\"\\}");
  std::string bounds;
  for (std::sregex_iterator it(text.begin(), text.end(), bucket), end; it != end; ++it)
    bounds += (bounds.empty() ? "" : ",") + it->str(1);
  return bounds;
}

TEST(Metrics, HaveTheBucketsOfVllm) {
  const std::string text = sample_text();
  const std::string request =
      "0.3,0.5,0.8,1.0,1.5,2.0,2.5,5.0,10.0,15.0,20.0,30.0,40.0,50.0,60.0,120.0,240.0,480.0,960.0,1920.0,7680.0,+Inf";
  const std::string token = "0.01,0.025,0.05,0.075,0.1,0.15,0.2,0.3,0.4,0.5,0.75,1.0,2.5,5.0,7.5,10.0,20.0,40.0,80.0,+Inf";
  const std::string tokens = "1.0,2.0,5.0,10.0,20.0,50.0,100.0,200.0,500.0,1000.0,+Inf";
  const std::map<std::string, std::string> expected = {
      {"vllm:time_to_first_token_seconds",
       "0.001,0.005,0.01,0.02,0.04,0.06,0.08,0.1,0.25,0.5,0.75,1.0,2.5,5.0,7.5,10.0,20.0,40.0,80.0,160.0,640.0,2560.0,+Inf"},
      {"vllm:inter_token_latency_seconds", token},
      {"vllm:request_time_per_output_token_seconds", token},
      {"vllm:e2e_request_latency_seconds", request},
      {"vllm:request_queue_time_seconds", request},
      {"vllm:request_inference_time_seconds", request},
      {"vllm:request_prefill_time_seconds", request},
      {"vllm:request_decode_time_seconds", request},
      {"vllm:iteration_tokens_total", "1.0,8.0,16.0,32.0,64.0,128.0,256.0,512.0,1024.0,2048.0,4096.0,8192.0,16384.0,+Inf"},
      {"vllm:request_params_n", "1.0,2.0,5.0,10.0,20.0,+Inf"},
      {"vllm:request_num_preemptions", "1.0,2.0,3.0,4.0,5.0,10.0,20.0,+Inf"},
      {"vllm:request_prompt_tokens", tokens},
      {"vllm:request_generation_tokens", tokens},
      {"vllm:request_max_num_generation_tokens", tokens},
      {"vllm:request_params_max_tokens", tokens},
      {"vllm:request_prefill_kv_computed_tokens", tokens},
  };
  for (const auto& [name, bounds] : expected) EXPECT_EQ(bounds_of(text, name), bounds) << name;
}

TEST(Metrics, PromtoolReadsThem) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no promtool on the PATH";
  const test::TempFolder temp;
  const std::string in = (temp.path() / "metrics").string(), out = (temp.path() / "out").string();
  std::ofstream(in) << sample_text();
  // It exits with 1 for what is no text of this format, with 3 for matters of taste.
  const int status = std::system(("promtool check metrics <" + in + " >" + out + " 2>&1").c_str());
  std::ifstream complaints(out);
  for (std::string line; std::getline(complaints, line);) {
    const bool is_vllms_taste =
        line.find("should not contain ':'") != std::string::npos || line.starts_with("vllm:iteration_tokens_total non-counter");
    EXPECT_TRUE(is_vllms_taste) << line;
  }
  EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3)) << status;
}

/// All "expr" of a dashboard, and the "query" of its variables.
void collect_queries(const nlohmann::json& json, std::vector<std::string>& queries) {
  for (const auto& [key, value] : json.items()) {
    if ((key == "expr" || key == "query") && value.is_string()) queries.push_back(value.get<std::string>());
    if (value.is_structured()) collect_queries(value, queries);
  }
}

TEST(Metrics, TheDashboardAsksForWhatThereIs) {
  std::set<std::string> names = names_of(sample_text());
  names.insert("up");  // Prometheus' own
  std::vector<std::string> queries;
  collect_queries(read_json_file(test::source_folder() / "launch/grafana/ferry.json"), queries);
  const std::regex metric("\\b(vllm:|ferry:|http_)[a-z0-9_]+");
  std::set<std::string> asked;
  for (const std::string& query : queries) {
    for (std::sregex_iterator it(query.begin(), query.end(), metric), end; it != end; ++it) {
      asked.insert(it->str());
      EXPECT_TRUE(names.contains(it->str())) << it->str() << " in " << query;
    }
  }
  EXPECT_GT(asked.size(), 20U);
}

}  // namespace
}  // namespace ferry
