#include "runtime/options/serve_options.h"

#include <gtest/gtest.h>

#include "tests/runtime/options/command_lines.h"

namespace ferry {
namespace {

using test::accept;
using test::line;
using test::parse;
using test::refuse;

TEST(Options, DefaultsOfServe) {
  const Options options = accept(line("serve", {}));
  EXPECT_EQ(options.command, Command::kServe);
  EXPECT_EQ(options.engine.model, "m");
  EXPECT_FALSE(options.engine.dtype.has_value());
  EXPECT_EQ(options.engine.threads, 0);
  EXPECT_EQ(options.engine.transport, TransportKind::kAuto);
  EXPECT_EQ(options.engine.net_interface, "");
  EXPECT_EQ(options.engine.combine, CombineMode::kExact);
  EXPECT_EQ(options.engine.profile, "0");
  EXPECT_EQ(options.engine.clock_skew.rank, -1);
  EXPECT_EQ(options.engine.kernels, "auto");
  EXPECT_EQ(options.engine.matmul, "auto");
  EXPECT_EQ(options.engine.memory_bytes, int64_t{2} << 30);
  EXPECT_EQ(options.engine.max_seqs, 16);
  EXPECT_EQ(options.engine.max_waiting, 256);
  EXPECT_EQ(options.engine.token_budget, 2112);
  EXPECT_EQ(options.engine.prefill_chunk, 2048);
  EXPECT_FALSE(options.engine.max_context.has_value());
  EXPECT_EQ(options.engine.peer_timeout_s, 30);
  EXPECT_FALSE(options.engine.check_weights);
  EXPECT_EQ(options.serve.grpc_address, "127.0.0.1:50051");
  EXPECT_EQ(options.serve.http_address, "127.0.0.1:8000");
  EXPECT_FALSE(options.serve.archive.trace_dir.has_value());
  EXPECT_EQ(options.serve.drain_timeout_s, 30);
}

TEST(Options, Serve) {
  const ServeOptions serve = accept(line("serve", {"--grpc", "[::1]:0", "--drain-timeout", "0.5"})).serve;
  EXPECT_EQ(serve.grpc_address, "[::1]:0");
  EXPECT_EQ(serve.drain_timeout_s, 0.5);
  EXPECT_EQ(accept(line("serve", {"--grpc", "off"})).serve.grpc_address, "off");
  refuse(line("serve", {"--grpc", "off", "--http", "off"}), {"--http, --grpc: both are off", "allowed: one of them"});
  refuse(line("serve", {"--drain-timeout", "-1"}), {"--drain-timeout", "'-1'", "0 to 86400 seconds"});
}

TEST(Options, OneStepInSoManyIsKeptInAFolder) {
  const auto archive_of = [](const std::string& command, const Options& options) {
    return command == "serve" ? options.serve.archive : options.batch.archive;
  };
  for (const std::string command : {"serve", "batch"}) {
    const auto with = [&](const std::vector<std::string>& options) {
      std::vector<std::string> all = line(command, options);
      if (command == "batch") all.insert(all.end(), {"in.jsonl", "out.jsonl"});
      return all;
    };
    EXPECT_EQ(archive_of(command, accept(with({}))).trace_sample, 0);
    const StepArchiveOptions archive =
        archive_of(command, accept(with({"--trace-dir", "d", "--trace-sample", "100", "--trace-sample-bytes", "2MiB"})));
    EXPECT_EQ(archive.trace_dir, "d");
    EXPECT_EQ(archive.trace_sample, 100);
    EXPECT_EQ(archive.max_bytes(), int64_t{2} << 20);
    EXPECT_EQ(archive_of(command, accept(with({"--trace-dir", "d", "--trace-sample", "1"}))).max_bytes(), int64_t{256} << 20);
    refuse(with({"--trace-dir", "d", "--trace-sample-bytes", "2MiB"}),
           {command == "serve" ? "--trace-sample-bytes without --trace-sample" : "without --trace-sample", "allowed"});
    refuse(with({"--trace-sample", "100"}), {"--trace-sample without --trace-dir", "allowed"});
    refuse(with({"--trace-dir", "d", "--trace-sample", "0"}), {"--trace-sample", "'0'", "1 to"});
    refuse(with({"--trace-dir", "d", "--trace-sample", "9", "--profile", "off"}), {"--trace-sample", "--profile off"});
    refuse(with({"--trace-dir", "d", "--trace-sample", "9", "--trace-sample-bytes", "1KiB"}), {"1MiB to 16TiB"});
  }
  EXPECT_EQ(accept(line("serve", {"--trace-dir", "d"})).serve.archive.trace_dir, "d") << "captures stay below it";
  refuse(line("batch", {"--trace-dir", "d", "in.jsonl", "out.jsonl"}), {"--trace-dir without --trace-sample", "allowed"});
}

TEST(Options, BenchKeepsNoStepsAndSaysWhy) {
  refuse(line("bench", {"--trace-sample", "100"}),
         {"--trace-sample", "bench times steps back to back", "allowed: --trace DIR"});
}

TEST(Options, PortsOfServeAreHostPort) {
  accept(line("serve", {"--http", "off", "--grpc", "[::1]:65535", "--elastic", "unix:here"}));
  accept(line("serve", {"--http", "node0:0", "--grpc", "node0:0", "--elastic", "node0:0"}));
  for (const char* option : {"--http", "--grpc", "--elastic"}) {
    for (const char* bad : {":8000", "node0", "node0:65536", "::1:8000"})
      refuse(line("serve", {option, bad}), {option, "address '" + std::string(bad) + "'", "is not HOST:PORT"});
  }
  refuse(line("batch", {"i", "o", "--elastic", "node0"}), {"--elastic address 'node0'"});
}

TEST(Options, PortsOfServeAreTakenOnce) {
  refuse(line("serve", {"--http", "127.0.0.1:8000", "--grpc", "localhost:8000"}),
         {"--http 127.0.0.1:8000 (port 8000) and --grpc localhost:8000 (port 8000) overlap", "allowed: no port twice"});
  refuse(line("serve", {"--grpc", "[::]:29000", "--elastic", "10.0.0.1:29000"}),
         {"--grpc [::]:29000", "--elastic 10.0.0.1:29000"});
  accept(line("serve", {"--http", "127.0.0.1:8000", "--grpc", "127.0.0.2:8000", "--elastic", "[::1]:8000"}));
  accept(line("serve", {"--http", "127.0.0.1:8000", "--grpc", "127.0.0.1:8001"}));
}

TEST(Options, PortsOfCoordinatorsComeBehindThoseOfServe) {
  const auto with = [](const std::vector<std::string>& options) {
    std::vector<std::string> all = line("serve", {"--coordinators", "2"});
    all.insert(all.end(), options.begin(), options.end());
    return all;
  };
  refuse(with({"--http", "off"}), {"--http off with --coordinators", "allowed: HOST:PORT"});
  accept(with({"--http", "a:65533", "--grpc", "a:65530"}));
  accept(with({"--http", "a:0", "--grpc", "a:0", "--elastic", "a:0"}));
  refuse(with({"--http", "a:65534"}),
         {"--http: 'a:65534' with --coordinators 2", "takes 3 ports", "allowed: 1 to 65533, or 0"});
  refuse(with({"--grpc", "a:65535"}), {"--grpc: 'a:65535'", "allowed: 1 to 65533, or 0"});
  accept(with({"--elastic", "a:65534"}));
  refuse(with({"--elastic", "a:65535"}), {"--elastic: 'a:65535' with --coordinators 2", "takes 2 ports", "1 to 65534, or 0"});

  refuse(with({"--http", "a:2400", "--grpc", "a:2401"}),
         {"--http a:2400 (ports 2400 to 2402) and --grpc a:2401 (ports 2401 to 2403) with --coordinators 2 overlap"});
  refuse(with({"--http", "a:2402", "--grpc", "a:2400"}),
         {"--http a:2402 (ports 2402 to 2404)", "--grpc a:2400 (ports 2400 to 2402)"});
  accept(with({"--http", "a:2403", "--grpc", "a:2400"}));
  accept(with({"--http", "127.0.0.1:2400", "--grpc", "127.0.0.2:2401"}));
  refuse(with({"--grpc", "a:2400", "--elastic", "a:2402"}),
         {"--grpc a:2400 (ports 2400 to 2402)", "--elastic a:2402 (ports 2402 to 2403)"});
  refuse(with({"--http", "10.0.0.1:2400", "--grpc", "10.0.0.2:2401", "--tls-cert", "c", "--tls-key", "k"}),
         {"2400 to 2402", "2401 to 2403"});
}

TEST(Options, LimitsOfThePortsAreOptionsWithRanges) {
  const ServerLimits limits =
      accept(line("serve", {"--http-body-bytes", "2MiB", "--http-headers", "50", "--grpc-streams", "7", "--http-idle-seconds",
                            "0.5", "--stop-bytes", "10", "--http-stream-bytes", "64KiB", "--http-json-values", "100"}))
          .serve.limits;
  EXPECT_EQ(limits.http_body_bytes, 2 << 20);
  EXPECT_EQ(limits.http_headers, 50);
  EXPECT_EQ(limits.grpc_streams, 7);
  EXPECT_EQ(limits.http_idle_s, 0.5);
  EXPECT_EQ(limits.stop_bytes, 10);
  EXPECT_EQ(limits.http_stream_bytes, 64 << 10);
  EXPECT_EQ(limits.http_json_values, 100);
  refuse(line("serve", {"--http-body-bytes", "2GiB"}), {"--http-body-bytes", "'2GiB'", "1KiB to 1GiB"});
  refuse(line("serve", {"--http-headers", "7"}), {"--http-headers", "'7'", "8 to 10000"});
  refuse(line("serve", {"--http-idle-seconds", "0"}), {"--http-idle-seconds", "0.1 to 86400"});
  const std::string help = parse({"serve", "--help"}).message;
  for (const char* text : {"--http-header-bytes", "--grpc-connections", "default 16MiB", "--prompt-bytes", "--api-key-file"})
    EXPECT_NE(help.find(text), std::string::npos) << text;
}

TEST(Options, ApiOfServe) {
  const ApiOptions defaults = accept(line("serve", {})).serve.api;
  EXPECT_TRUE(defaults.model_names.empty());
  EXPECT_TRUE(defaults.uses_generation_config);
  EXPECT_EQ(defaults.max_logprobs, 20);
  EXPECT_EQ(defaults.keep_alive_s, 15);
  EXPECT_FALSE(defaults.echoes_request_id);
  const ApiOptions api =
      accept(line("serve", {"--served-model-name", "one", "two", "--generation-config", "vllm", "--override-generation-config",
                            R"({"top_k":1})", "--default-chat-template-kwargs", R"({"a":1})", "--max-logprobs", "-1",
                            "--sse-keep-alive-interval", "0", "--enable-request-id-headers"}))
          .serve.api;
  EXPECT_EQ(api.model_names, (std::vector<std::string>{"one", "two"}));
  EXPECT_FALSE(api.uses_generation_config);
  EXPECT_EQ(api.generation_override, R"({"top_k":1})");
  EXPECT_EQ(api.template_kwargs, R"({"a":1})");
  EXPECT_EQ(api.max_logprobs, -1);
  EXPECT_EQ(api.keep_alive_s, 0);
  EXPECT_TRUE(api.echoes_request_id);
  refuse(line("serve", {"--generation-config", "x"}), {"--generation-config", "'x'", "auto", "vllm"});
  refuse(line("serve", {"--override-generation-config", "[1]"}), {"--override-generation-config", "'[1]'", "a JSON object"});
  refuse(line("serve", {"--served-model-name", ""}), {"--served-model-name", "a name"});
}

TEST(Options, SchedulingOfServe) {
  const PolicyOptions defaults = accept(line("serve", {})).engine.policy;
  EXPECT_EQ(defaults.policy, SchedulingPolicy::kFcfs);
  EXPECT_FALSE(defaults.is_given);
  EXPECT_TRUE(accept(line("serve", {"--policy", "fcfs"})).engine.policy.is_given);
  EXPECT_EQ(defaults.order, QueueOrder::kArrival);
  EXPECT_EQ(defaults.decode_slo_s, 0);
  const PolicyOptions policy =
      accept(line("serve", {"--policy", "fair", "--queue-order", "shortest", "--aging-rate", "50", "--decode-slo-ms", "80"}))
          .engine.policy;
  EXPECT_EQ(policy.policy, SchedulingPolicy::kFair);
  EXPECT_EQ(policy.order, QueueOrder::kShortest);
  EXPECT_EQ(policy.aging_tokens_per_s, 50);
  EXPECT_DOUBLE_EQ(policy.decode_slo_s, 0.08);
  EXPECT_EQ(accept(line("serve", {"--scheduling-policy", "priority"})).engine.policy.policy, SchedulingPolicy::kPriority);
  refuse(line("serve", {"--policy", "lifo"}), {"--policy", "'lifo'", "fcfs", "priority", "fair"});
  refuse(line("serve", {"--queue-order", "x"}), {"--queue-order", "'x'", "arrival", "shortest"});
  refuse(line("serve", {"--aging-rate", "0"}), {"--aging-rate", "'0'", "1 to"});
  refuse(line("serve", {"--decode-slo-ms", "0"}), {"--decode-slo-ms", "'0'", "0.1 to 3600000"});
  refuse(line("generate", {"--policy", "fcfs"}), {"--policy"});
}

TEST(Options, Batch) {
  const Options options = accept(
      line("batch", {"in.jsonl", "out.jsonl", "--concurrency", "7", "--policy", "priority", "--served-model-name", "n"}));
  EXPECT_EQ(options.command, Command::kBatch);
  EXPECT_EQ(options.batch.input, "in.jsonl");
  EXPECT_EQ(options.batch.output, "out.jsonl");
  EXPECT_EQ(options.batch.concurrency, 7);
  EXPECT_EQ(options.batch.api.model_names, (std::vector<std::string>{"n"}));
  EXPECT_EQ(options.engine.policy.policy, SchedulingPolicy::kPriority);
  EXPECT_EQ(options.engine.prefix_cache_bytes, options.engine.memory_bytes / 2);
  EXPECT_TRUE(options.engine.media.is_wanted);
  EXPECT_EQ(accept(line("batch", {"a", "b"})).batch.concurrency, 0);
  refuse(line("batch", {"a"}), {"output"});
  refuse(line("batch", {}), {"input"});
  refuse(line("batch", {"a", "b", "c"}), {"'c'"});
  refuse(line("batch", {"a", "b", "--concurrency", "0"}), {"--concurrency", "'0'", "1 to 65536"});
}

TEST(Options, AccessOfServe) {
  const AccessOptions access = accept(line("serve", {"--api-key-file", "k", "--tls-cert", "c", "--tls-key", "p",
                                                     "--tls-client-ca", "a", "--allowed-host", "one", "--allowed-host", "two",
                                                     "--allowed-origin", "http://a", "--allowed-origin", "http://b"}))
                                   .serve.access;
  EXPECT_EQ(access.api_key_file, "k");
  EXPECT_EQ(access.tls_client_ca, "a");
  EXPECT_EQ(access.allowed_hosts, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(access.allowed_origins, (std::vector<std::string>{"http://a", "http://b"}));
  refuse(line("serve", {"--tls-cert", "c"}), {"--tls-cert", "--tls-key", "both"});
  refuse(line("serve", {"--tls-key", "c"}), {"--tls-key", "--tls-cert", "both"});
  refuse(line("serve", {"--tls-client-ca", "c"}), {"--tls-client-ca", "--tls-cert"});
}

TEST(Options, ThePrefixCacheIsSharedByAllKeysOrBelongsToOne) {
  EXPECT_EQ(accept(line("serve", {})).serve.prefix_cache_scope, PrefixCacheScope::kShared);
  const auto scope_of = [](const char* scope) {
    return accept(line("serve", {"--api-key-file", "k", "--prefix-cache-scope", scope})).serve.prefix_cache_scope;
  };
  EXPECT_EQ(scope_of("shared"), PrefixCacheScope::kShared);
  EXPECT_EQ(scope_of("key"), PrefixCacheScope::kKey);
  refuse(line("serve", {"--prefix-cache-scope", "user"}), {"--prefix-cache-scope", "'user'", "shared", "key"});
  refuse(line("serve", {"--prefix-cache-scope", "key"}), {"--prefix-cache-scope", "--api-key-file", "shared"});
}

TEST(Options, RequestsAreLoggedInOneOfTwoForms) {
  EXPECT_EQ(accept(line("serve", {})).serve.log_requests, RequestLogForm::kOff);
  EXPECT_EQ(accept(line("serve", {"--log-requests", "off"})).serve.log_requests, RequestLogForm::kOff);
  EXPECT_EQ(accept(line("serve", {"--log-requests", "text"})).serve.log_requests, RequestLogForm::kText);
  EXPECT_EQ(accept(line("serve", {"--log-requests", "json"})).serve.log_requests, RequestLogForm::kJson);
  refuse(line("serve", {"--log-requests", "csv"}), {"--log-requests", "'csv'", "off, text, json"});
}

TEST(Options, OneKeyMayComeFromTheEnvironment) {
  ASSERT_EQ(setenv("FERRY_API_KEY", "a-secret-key", 1), 0);
  EXPECT_EQ(accept(line("serve", {})).serve.access.api_key, "a-secret-key");
  ASSERT_EQ(setenv("FERRY_API_KEY", "", 1), 0);
  refuse(line("serve", {}), {"FERRY_API_KEY", "no such variable"});
  EXPECT_FALSE(accept(line("generate", {})).serve.access.api_key.has_value());
  ASSERT_EQ(unsetenv("FERRY_API_KEY"), 0);
  EXPECT_FALSE(accept(line("serve", {})).serve.access.api_key.has_value());
}

TEST(Options, TheTimeoutFactorComesFromTheEnvironment) {
  for (const char* text : {"x", "0", "101"}) {
    ASSERT_EQ(setenv("FERRY_TIMEOUT_FACTOR", text, 1), 0);
    refuse(line("serve", {}), {"FERRY_TIMEOUT_FACTOR", text, "1 to 100"});
  }
  ASSERT_EQ(setenv("FERRY_TIMEOUT_FACTOR", "20", 1), 0);
  EXPECT_EQ(accept(line("serve", {})).timeout_factor, 20);
  ASSERT_EQ(unsetenv("FERRY_TIMEOUT_FACTOR"), 0);
  EXPECT_EQ(accept(line("serve", {})).timeout_factor, 1);
}

}  // namespace
}  // namespace ferry
