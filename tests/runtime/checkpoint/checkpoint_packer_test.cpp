#include "runtime/checkpoint/checkpoint_packer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/model/weights_loader.h"
#include "tests/support/expect_error.h"
#include "tests/support/load_experts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TinyModel;

const std::string kLayerPrefix = "model.language_model.layers.";
constexpr const char* kMixed = "experts=w4a8,lm_head=w8a8";

/// Widths that groups of 32 divide, 64 not always.
const test::TinyModelOptions kSizes{.hidden = 96, .v_dim = 24, .expert_dim = 32, .shared_dim = 64};

/// A tiny checkpoint and the folder it is packed into.
class PackerTest : public testing::Test {
 protected:
  PackSummary pack(const TinyModel& model, const std::string& quantize, int64_t file_bytes = 1 << 30) {
    fs::create_directories(from_);
    model.write(from_);
    return pack({.dtype = DType::kBF16, .quantization = parse_quantization(quantize), .file_bytes = file_bytes});
  }
  /// Packs the checkpoint in from_.
  PackSummary pack(const PackOptions& options) {
    return pack_checkpoint(from_, to_, quantized_matrices(from_, options.quantization), pool_, options);
  }
  void expect_refused(const TinyModel& model, const std::string& quantize, const std::vector<std::string>& parts) {
    expect_error([&] { pack(model, quantize); }, ErrorCode::kInvalidArgument, parts);
    EXPECT_FALSE(fs::exists(to_)) << "something was left";
  }
  /// Makes the folder one of an older Ferry.
  void forget_checksums(const std::string& quantize) {
    write_packed_mark(to_, {.quantization = parse_quantization(quantize), .files = {}});
    fs::remove(to_ / kChecksumsFile);
  }
  std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Loads what was packed with own kernels: the trunk, and of two ranks' experts one's.
  void load(int32_t rank_idx = 1) {
    if (cpu_matmul_names().empty()) GTEST_SKIP() << "no own kernels for this processor";
    const Backend backend = select_backend("auto", "auto", DType::kBF16);
    const std::vector<Rank> ranks{{0}, {1}};
    const Checkpoint checkpoint = Checkpoint::open(to_);
    const ModelConfig config = load_config(to_);
    const LoadOptions options{.dtype = DType::kBF16, .weights = plan_weights(to_, std::nullopt), .check_finite = true};
    load_trunk(checkpoint, config, backend, pool_, options);
    load_experts(checkpoint, config, ExpertMap::contiguous(config.moe.num_experts, ranks), rank_idx, backend.matmul(), pool_,
                 options);
  }

  test::TempFolder dir_;
  fs::path from_ = dir_.path() / "from", to_ = dir_.path() / "to";
  ThreadPool pool_{3};
};

TEST_F(PackerTest, KeepsWhatIsNotQuantisedAndReplacesTheRest) {
  TinyModel model(kSizes);
  model.generation = {{"eos_token_id", 1}};
  model.tensors["model.visual.patch_embed.proj.weight"] = model.tensors.at("lm_head.weight");
  const PackSummary summary = pack(model, kMixed);
  EXPECT_EQ(summary.num_files, 1);
  const Checkpoint checkpoint = Checkpoint::open(to_);
  std::set<std::string> expected{"lm_head.panels"};
  for (const auto& [name, tensor] : model.tensors) {
    if (name == "lm_head.weight" || name.find(".experts.") != std::string::npos) continue;
    expected.insert(name);
    const TensorInfo* copy = checkpoint.find(name);
    ASSERT_NE(copy, nullptr) << name;
    EXPECT_EQ(copy->dtype, tensor.dtype);
    EXPECT_EQ(copy->shape, tensor.shape);
    EXPECT_EQ(std::vector<std::byte>(copy->data, copy->data + copy->bytes), tensor.data) << name;
  }
  for (int layer = 0; layer < 3; ++layer) {
    for (int e = 0; e < 11; ++e) {
      for (const char* part : {".gate_up_proj.panels", ".down_proj.panels"})
        expected.insert(kLayerPrefix + std::to_string(layer) + ".mlp.experts." + std::to_string(e) + part);
    }
  }
  std::set<std::string> names;
  for (const std::string_view name : checkpoint.names()) names.emplace(name);
  EXPECT_EQ(names, expected);
  EXPECT_EQ(checkpoint.find("lm_head.panels")->note, "w8a8 [97, 96]");
  EXPECT_EQ(checkpoint.find(kLayerPrefix + "1.mlp.experts.7.gate_up_proj.panels")->note, "w4a8:32 [64, 96] gated");
  for (const char* file : {"config.json", "generation_config.json"}) EXPECT_EQ(read(to_ / file), read(from_ / file));
  load();
}

TEST_F(PackerTest, FormsOfStorageAndFilesGiveTheSamePanels) {
  pack(TinyModel(kSizes), "w4a8");
  const Checkpoint one = Checkpoint::open(to_);
  test::TinyModelOptions sizes = kSizes;
  sizes.packed_experts = false;
  fs::remove_all(from_);
  to_ = dir_.path() / "many";
  const PackSummary summary = pack(TinyModel(sizes), "w4a8", 20000);
  EXPECT_GT(summary.num_files, 5);
  const Checkpoint many = Checkpoint::open(to_);
  ASSERT_EQ(one.names(), many.names());
  for (const std::string_view name : one.names()) {
    const TensorInfo &a = *one.find(name), &b = *many.find(name);
    EXPECT_EQ(a.shape, b.shape) << name;
    EXPECT_EQ(std::vector<std::byte>(a.data, a.data + a.bytes), std::vector<std::byte>(b.data, b.data + b.bytes)) << name;
  }
  load();
}

TEST_F(PackerTest, TheEmbeddingStaysWhereItIsTheHeadToo) {
  test::TinyModelOptions sizes = kSizes;
  sizes.tie_embeddings = true;
  pack(TinyModel(sizes), "lm_head=w8a8");
  const Checkpoint checkpoint = Checkpoint::open(to_);
  EXPECT_NE(checkpoint.find("model.language_model.embed_tokens.weight"), nullptr);
  EXPECT_NE(checkpoint.find("lm_head.panels"), nullptr);
  load();
}

TEST_F(PackerTest, ProgressCountsEveryByte) {
  TinyModel model(kSizes);
  fs::create_directories(from_);
  model.write(from_);
  int64_t last = 0, all = 0;
  const auto progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    all = total;
  };
  const PackSummary summary = pack({.dtype = DType::kBF16, .quantization = parse_quantization("w8a8"), .progress = progress});
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, summary.read_bytes);
  int64_t bytes = 0;
  for (const auto& [name, tensor] : model.tensors) bytes += static_cast<int64_t>(tensor.data.size());
  EXPECT_EQ(all, bytes);
}

TEST_F(PackerTest, BadInputLeavesNothing) {
  const TinyModel good(kSizes);
  expect_refused(TinyModel(), "w4a8", {"tensor", "72 elements", "allowed: w8a8 or none"});
  TinyModel bad = good;
  bad.tensors.at(kLayerPrefix + "1.mlp.experts.down_proj").set(5, std::numeric_limits<float>::quiet_NaN());
  expect_refused(bad, "w8a8", {"layers.1.mlp.experts.down_proj", "nan at row 0, column 5"});
  bad = good;
  bad.tensors.erase("lm_head.weight");
  expect_refused(bad, "w8a8", {"lm_head.weight", "missing"});
  bad = good;
  bad.tensors["stranger"] = bad.tensors.at("lm_head.weight");
  expect_refused(bad, "w8a8", {"stranger", "does not belong"});
}

TEST_F(PackerTest, FoldersThatCannotBeWritten) {
  const TinyModel model(kSizes);
  fs::create_directory(to_);
  pack(model, "w8a8");
  expect_error([&] { pack(model, "w8a8"); }, ErrorCode::kInvalidArgument, {"--out", to_.string(), "not empty"});
  EXPECT_TRUE(fs::exists(to_ / kPackedMark)) << "what was there is gone";
  from_ = to_;
  to_ = dir_.path() / "again";
  expect_error([&] { pack({.quantization = parse_quantization("w8a8")}); }, ErrorCode::kInvalidArgument,
               {"packed already", "'w8a8'"});
  from_ = dir_.path() / "from";
  to_ = from_ / "config.json";
  expect_error([&] { pack(model, "w8a8"); }, ErrorCode::kInvalidArgument, {"--out", "no folder"});
  to_ = dir_.path() / "no" / "such";
  expect_error([&] { pack(model, "w8a8"); }, ErrorCode::kFailedPrecondition, {"--out", to_.string()});
}

TEST_F(PackerTest, AFullDiskLeavesNothing) {
  const TinyModel model(kSizes);
  fs::create_directories(from_);
  model.write(from_);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{30000, old_limit.rlim_max};  // bytes that a file may have, in place of a disk that is full
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  expect_error([&] { pack({.quantization = parse_quantization("w8a8")}); }, ErrorCode::kResourceExhausted,
               {"model-00001-of-00001.safetensors"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(fs::exists(to_));
}

TEST_F(PackerTest, ARankReadsItsOwnExpertsOnly) {
  if (cpu_matmul_names().empty()) GTEST_SKIP() << "no own kernels for this processor";
  pack(TinyModel(kSizes), "w8a8");
  const fs::path path = to_ / "model-00001-of-00001.safetensors";
  const std::string name = kLayerPrefix + "1.mlp.experts.5.down_proj.panels";  // of 11 the first rank holds 0 to 5
  int64_t end = 0;                                                             // of the tensor in the file
  {
    const SafetensorsFile file(path);
    const std::string whole = read(path);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, whole.data(), sizeof(header_bytes));
    const std::byte* first = file.tensors().front().data;
    for (const TensorInfo& tensor : file.tensors()) first = std::min(first, tensor.data);
    end = static_cast<int64_t>(8 + header_bytes) + (file.find(name)->data - first) + file.find(name)->bytes;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(end - 4).write(reinterpret_cast<const char*>(&nan), sizeof(nan));  // the scale of the last column
  file.close();
  load(1);
  expect_error([&] { load(0); }, ErrorCode::kInvalidArgument, {name, "is damaged"});
  forget_checksums("w8a8");
  load(1);
  expect_error([&] { load(0); }, ErrorCode::kInvalidArgument, {name, "nan", "column 31", "must be finite"});
}

TEST_F(PackerTest, DamagedFoldersAreRefusedWhenLoaded) {
  pack(TinyModel(kSizes), "w4a8");
  forget_checksums("w4a8");
  const fs::path file = to_ / "model-00001-of-00001.safetensors";
  const std::string whole = read(file);
  const auto refuse = [&](const std::string& text, const std::vector<std::string>& parts) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    expect_error([&] { load(); }, ErrorCode::kInvalidArgument, parts);
  };
  refuse(whole.substr(0, whole.size() - 100), {"tensor", "truncated"});
  refuse(whole.substr(0, 1000), {"model-00001", "truncated"});
  refuse("", {"model-00001", "0 bytes"});
  const auto replaced = [&](const std::string& from, const std::string& to) {
    EXPECT_EQ(from.size(), to.size());
    std::string text = whole;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  refuse(replaced("w4a8:32 [97, 96]", "w4a8:64 [97, 96]"), {"lm_head.panels", "'w4a8:64 [97, 96]'", "'w4a8:32 [97, 96]'"});
  refuse(replaced("\"lm_head.panels\":{\"dtype\":\"U8\"", "\"lm_head.panels\":{\"dtype\":\"I8\""),
         {"lm_head.panels", "I8", "U8"});
  std::ofstream(file, std::ios::binary | std::ios::trunc) << whole;
  load();
  fs::remove(to_ / kPackedMark);
  expect_error([&] { load(); }, ErrorCode::kInvalidArgument, {"lm_head.weight", "missing"});
  forget_checksums("experts=w4a8");
  expect_error([&] { load(); }, ErrorCode::kInvalidArgument, {"lm_head.weight", "missing"});
}

}  // namespace
}  // namespace ferry
