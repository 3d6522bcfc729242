#include "runtime/options/engine_options.h"

#include <gtest/gtest.h>

#include "tests/runtime/options/command_lines.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

using test::accept;
using test::line;
using test::refuse;

TEST(Options, EveryEngineOption) {
  for (const char* command : {"serve", "generate", "dump", "bench"}) {
    const EngineOptions engine =
        accept(line(command,
                    {"--dtype",        "f32",  "--threads",      "3",    "--transport",     "gloo",   "--net-interface", "lo",
                     "--kernels",      "avx2", "--matmul",       "avx2", "--memory",        "512MiB", "--max-seqs",      "5",
                     "--max-waiting",  "7",    "--token-budget", "99",   "--prefill-chunk", "64",     "--max-context",   "1000",
                     "--peer-timeout", "2.5",  "--swap-memory",  "7MiB", "--check-weights"}))
            .engine;
    EXPECT_EQ(engine.dtype, DType::kF32);
    EXPECT_EQ(engine.threads, 3);
    EXPECT_EQ(engine.transport, TransportKind::kGloo);
    EXPECT_EQ(engine.net_interface, "lo");
    EXPECT_EQ(engine.kernels, "avx2");
    EXPECT_EQ(engine.matmul, "avx2");
    EXPECT_EQ(engine.memory_bytes, int64_t{512} << 20);
    EXPECT_EQ(engine.swap_bytes, int64_t{7} << 20);
    EXPECT_EQ(engine.max_seqs, 5);
    EXPECT_EQ(engine.max_waiting, 7);
    EXPECT_EQ(engine.token_budget, 99);
    EXPECT_EQ(engine.prefill_chunk, 64);
    EXPECT_EQ(engine.max_context, 1000);
    EXPECT_EQ(engine.peer_timeout_s, 2.5);
    EXPECT_TRUE(engine.check_weights);
    EXPECT_EQ(engine.shares_blocks, std::string(command) == "serve");
  }
}

TEST(Options, KeysAndValuesMayBeCodes) {
  for (const char* command : {"serve", "generate", "dump", "bench"}) {
    EXPECT_EQ(accept(line(command, {})).engine.kv_cache_dtype, std::nullopt);
    EXPECT_EQ(accept(line(command, {"--kv-cache-dtype", "auto"})).engine.kv_cache_dtype, std::nullopt);
    EXPECT_EQ(accept(line(command, {"--kv-cache-dtype", "bf16"})).engine.kv_cache_dtype, DType::kBF16);
    EXPECT_EQ(accept(line(command, {"--kv-cache-dtype", "int8"})).engine.kv_cache_dtype, DType::kI8);
    refuse(line(command, {"--kv-cache-dtype", "fp8"}), {"--kv-cache-dtype", "fp8", "auto", "bf16", "int8"});
    refuse(line(command, {"--kv-cache-dtype", "int8", "--device", "vulkan:1"}),
           {"--kv-cache-dtype", "'int8'", "auto or bf16 with --device vulkan:1", "--device cpu"});
  }
}

TEST(Options, OnlyServersHaveAPrefixCache) {
  const auto bytes = [](const std::vector<std::string>& arguments) {
    return accept(line("serve", arguments)).engine.prefix_cache_bytes;
  };
  EXPECT_EQ(bytes({"--memory", "512MiB"}), int64_t{256} << 20) << "half of it, unless said";
  EXPECT_EQ(bytes({"--prefix-cache-memory", "3GiB"}), int64_t{3} << 30);
  EXPECT_EQ(bytes({"--prefix-cache-memory", "0B"}), 0);
  EXPECT_FALSE(accept(line("generate", {})).engine.prefix_cache_bytes.has_value());
  refuse(line("generate", {"--prefix-cache-memory", "1GiB"}), {"--prefix-cache-memory"});
  refuse(line("serve", {"--prefix-cache-memory", "much"}), {"--prefix-cache-memory", "0B to 1PiB"});
  EXPECT_EQ(accept(line("serve", {})).engine.prefix_file_bytes, 0);
  const EngineOptions spilling =
      accept(line("serve", {"--prefix-cache-disk", "20GiB", "--prefix-cache-folder", "/some"})).engine;
  EXPECT_EQ(spilling.prefix_file_bytes, int64_t{20} << 30);
  EXPECT_EQ(spilling.prefix_file_folder, "/some");
  refuse(line("serve", {"--prefix-cache-disk", "all"}), {"--prefix-cache-disk", "0B to 1PiB"});
}

TEST(Options, NamedValues) {
  for (const char* kernels : {"auto", "avx512", "avx2", "ref"})
    EXPECT_EQ(accept(line("serve", {"--kernels", kernels})).engine.kernels, kernels);
  for (const char* matmul : {"auto", "amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "onednn", "ref"})
    EXPECT_EQ(accept(line("serve", {"--matmul", matmul})).engine.matmul, matmul);
  EXPECT_EQ(accept(line("serve", {"--combine", "fast"})).engine.combine, CombineMode::kFast);
  EXPECT_EQ(accept(line("serve", {"--dtype", "bf16"})).engine.dtype, DType::kBF16);
  EXPECT_EQ(accept(line("serve", {"--transport", "mpi"})).engine.transport, TransportKind::kMpi);
  EXPECT_EQ(accept(line("serve", {"--transport", "auto"})).engine.transport, TransportKind::kAuto);
}

TEST(Options, Device) {
  using Kind = DeviceChoice::Kind;
  for (const char* command : {"serve", "generate", "dump", "bench"}) {
    EXPECT_EQ(accept(line(command, {})).engine.device, DeviceChoice{});
    EXPECT_EQ(accept(line(command, {"--device", "vulkan:3"})).engine.device, (DeviceChoice{Kind::kVulkan, 3}));
  }
  const auto device = [](const char* text) { return accept(line("serve", {"--device", text})).engine.device; };
  EXPECT_EQ(device("cpu"), (DeviceChoice{Kind::kCpu, std::nullopt}));
  EXPECT_EQ(device("auto"), (DeviceChoice{Kind::kAuto, std::nullopt}));
  EXPECT_EQ(device("vulkan"), (DeviceChoice{Kind::kVulkan, std::nullopt}));
  EXPECT_EQ(device("vulkan:0"), (DeviceChoice{Kind::kVulkan, 0}));
  EXPECT_EQ(device("vulkan:255"), (DeviceChoice{Kind::kVulkan, 255}));
  for (const char* text : {"cpu", "auto", "vulkan", "vulkan:12"}) EXPECT_EQ(device_choice_name(device(text)), text);
  for (const std::string text :
       {"", "gpu", "CPU", "vulkan:", "vulkan:-1", "vulkan:256", "vulkan:1x", "vulkan:99999999999", "cpu:0"})
    refuse(line("serve", {"--device", text}), {"--device", "'" + text + "'", "cpu, auto, vulkan, or vulkan:N"});
}

TEST(Options, TheCacheIsTheEnvironments) {
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/x", 1), 0);
  EXPECT_EQ(accept(line("generate", {})).engine.cache_folder, "/x/ferry");
  ASSERT_EQ(unsetenv("XDG_CACHE_HOME"), 0);
  EXPECT_NE(accept(line("generate", {})).engine.cache_folder, "/x/ferry");
}

TEST(Options, KernelsOfTheCpuAreForTheCpu) {
  EXPECT_EQ(accept(line("serve", {"--device", "vulkan", "--kernels", "auto", "--matmul", "auto"})).engine.kernels, "auto");
  EXPECT_EQ(accept(line("serve", {"--device", "cpu", "--kernels", "ref"})).engine.kernels, "ref");
  for (const char* device : {"auto", "vulkan", "vulkan:1"}) {
    refuse(line("serve", {"--device", device, "--kernels", "ref"}), {"--kernels", "'ref'", std::string("--device ") + device});
    refuse(line("serve", {"--device", device, "--matmul", "amx"}), {"--matmul", "'amx'", "--device cpu"});
  }
}

TEST(Options, DemoNamesTheCheckpointThatComesWithFerry) {
  EXPECT_EQ(accept({"serve", "--model", "demo"}).engine.model, test::source_folder() / "launch" / "demo");
  EXPECT_EQ(accept({"serve", "--model", "./demo"}).engine.model, "./demo");
}

TEST(Options, MemoryUnits) {
  const std::vector<std::pair<std::string, int64_t>> sizes{
      {"4096", 4096}, {"1KiB", 1024}, {"3 MB", 3 << 20}, {"2gib", int64_t{2} << 30}, {"1TiB", int64_t{1} << 40}};
  for (const auto& [text, bytes] : sizes)
    EXPECT_EQ(accept(line("serve", {"--memory", text})).engine.memory_bytes, bytes) << text;
  for (const std::string text :
       {"3", "12parsecs", "-5GiB", "2PiB", "99999999999999999999", "9999999EiB", "", "1.5.2GiB", "GiB"}) {
    refuse(line("serve", {"--memory", text}), {"--memory", "1KiB to 1PiB"});
  }
}

TEST(Options, LimitsThatContradictEachOther) {
  refuse(line("serve", {"--max-seqs", "2100"}),
         {"--token-budget", "'2112'", "at least 2164", "--max-seqs 2100", "--prefill-chunk 2048"});
  EXPECT_EQ(accept(line("serve", {"--token-budget", "17", "--prefill-chunk", "1"})).engine.token_budget, 17);
  EXPECT_EQ(accept(line("serve", {"--prefill-chunk", "37"})).engine.prefill_chunk, 37);
  EXPECT_EQ(accept(line("serve", {"--prefill-chunk", "192"})).engine.prefill_chunk, 192);
}

TEST(Options, Speculate) {
  using enum Speculation::Source;
  const auto speculation = [](const char* text) { return accept(line("serve", {"--speculate", text})).engine.speculation; };
  EXPECT_EQ(speculation("auto"), (Speculation{kAuto, 0}));
  EXPECT_EQ(speculation("0"), (Speculation{kMtp, 0}));
  EXPECT_EQ(speculation("8"), (Speculation{kMtp, 8}));
  EXPECT_EQ(speculation("ngram:5"), (Speculation{kNgram, 5}));
  for (const char* command : {"serve", "generate"})
    EXPECT_EQ(accept(line(command, {})).engine.speculation, (Speculation{kAuto, 0})) << command;
  for (const char* command : {"dump", "bench"})
    EXPECT_EQ(accept(line(command, {})).engine.speculation, (Speculation{kMtp, 0})) << command << " does not guess";
  for (const char* bad : {"9", "-1", "", "ngram", "ngram:", "ngram:0", "ngram:9", "mtp", "1.5", "AUTO"})
    refuse(line("serve", {"--speculate", bad}), {"--speculate", "auto, 0 to 8, or ngram:1 to ngram:8"});
}

TEST(Options, TraceAndClockSkew) {
  const Options options = accept(line("bench", {"--trace", "t", "--trace-clock-skew", "2:-5000:40.5"}));
  EXPECT_EQ(options.engine.trace, "t");
  EXPECT_EQ(options.engine.clock_skew.rank, 2);
  EXPECT_EQ(options.engine.clock_skew.offset_ns, -5000);
  EXPECT_EQ(options.engine.clock_skew.drift_ppm, 40.5);
}

}  // namespace
}  // namespace ferry
