#include "runtime/checkpoint/checksums.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "runtime/base/file_descriptor.h"
#include "runtime/checkpoint/checkpoint_packer.h"
#include "runtime/checkpoint/folder_check.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/model/expert_loader.h"
#include "runtime/model/weights_loader.h"
#include "tests/support/damaged_tensor.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// Damaged bytes of a packed folder are refused at load or told by check_folder().

namespace ferry {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

constexpr const char* kWeights = "model-00001-of-00001.safetensors";
constexpr const char* kExperts = "model.language_model.layers.0.mlp.experts.";
/// Files beside the weights that Checkpoint::open() and load_config() do not parse.
constexpr std::array kTextFiles = {"chat_template.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"};
constexpr const char* kEmbedding = "model.language_model.embed_tokens.weight";

test::TinyModelOptions small_sizes() {
  return {.layers = {"full_attention"},
          .vocab = 40,
          .hidden = 64,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 32,
          .num_experts = 3,
          .top_k = 2,
          .expert_dim = 32,
          .shared_dim = 32};
}

/// A tiny model in a packed folder, whose bytes can be damaged and mended.
class DamageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cpu_matmul_names().empty()) GTEST_SKIP() << "no own kernels for this processor";
    const fs::path from = dir_.path() / "from";
    fs::create_directories(from);
    test::TinyModel model(small_sizes());
    model.generation = {{"eos_token_id", 1}};
    model.write(from);
    for (const char* name : kTextFiles) std::ofstream(from / name) << R"({"some": "text"})";
    const Quantization quantization = parse_quantization("experts=w4a8:32,lm_head=w8a8");
    pack_checkpoint(from, to_, quantized_matrices(from, quantization), pool_,
                    {.dtype = DType::kBF16, .quantization = quantization});
  }

  void flip(const std::string& name, int64_t offset, int bit = 0) { test::flip_bit(to_ / name, offset, bit); }
  int64_t offset_of(const std::string& tensor, int64_t at) const { return test::tensor_offset(to_ / kWeights, tensor, at); }
  /// Makes the folder larger than those whose mapped panels are checked at start, without taking as much of a disk.
  void enlarge() {
    constexpr int64_t kBytes = kSmallFolderBytes + 1;
    const std::string header = R"({"other":{"dtype":"U8","shape":[)" + std::to_string(kBytes) + R"(],"data_offsets":[0,)" +
                               std::to_string(kBytes) + "]}}";
    const uint64_t header_bytes = header.size();
    const std::string start = std::string(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes)) + header;
    std::ofstream(to_ / "mtp.safetensors", std::ios::binary) << start;
    fs::resize_file(to_ / "mtp.safetensors", start.size() + static_cast<uint64_t>(kBytes));
    ChecksumMaker maker;
    maker.begin(std::as_bytes(std::span(start)));
    maker.expect("other", kBytes, checksum_piece_bytes(StoredType::kU8, {kBytes}));
    maker.add(std::vector<std::byte>(static_cast<std::size_t>(kBytes)));
    list("mtp.safetensors", maker.take());
  }
  /// Gives the folder the checksums of one more file of weights.
  void list(const std::string& name, const FileChecksums& checksums) {
    PackedMark mark = *read_packed_mark(to_);
    FolderChecksums weights = read_packed_checksums(to_, mark);
    weights.emplace(name, checksums);
    const std::string text = write_checksums(weights);
    std::ofstream(to_ / kChecksumsFile) << text;
    mark.files[kChecksumsFile] = checksum_text(content_hash(std::as_bytes(std::span(text))));
    write_packed_mark(to_, mark);
  }

  LoadOptions load_options(bool check_finite = false) const {
    return {.dtype = DType::kBF16, .weights = plan_weights(to_, std::nullopt), .check_finite = check_finite};
  }
  /// Loads the trunk and all experts.
  void load(bool check_finite = false) {
    const Checkpoint checkpoint = Checkpoint::open(to_);
    const ModelConfig config = load_config(to_);
    const LoadOptions options = load_options(check_finite);
    load_trunk(checkpoint, config, backend_, pool_, options);
    const RankExperts all{{LogicalExpertId{0}, LogicalExpertId{1}, LogicalExpertId{2}}};
    ExpertLoader(checkpoint, config, backend_.matmul(), options).load_all(all, pool_);
  }
  void load_expert(int32_t expert) {
    const Checkpoint checkpoint = Checkpoint::open(to_);
    const ModelConfig config = load_config(to_);
    ExpertLoader(checkpoint, config, backend_.matmul(), load_options()).load(0, LogicalExpertId{expert});
  }
  std::vector<std::string> damages() {
    std::vector<std::string> found;
    for (const FileCheck& file : check_folder(to_, pool_)) {
      if (!file.damage.empty()) found.push_back(file.damage);
    }
    return found;
  }
  /// check_folder() tells `result` of one file in a line that has `parts`, and no other damage.
  void expect_result(const std::string& name, FileCheck::Result result, const std::vector<std::string>& parts) {
    EXPECT_EQ(damages().size(), 1U) << name;
    for (const FileCheck& file : check_folder(to_, pool_)) {
      if (file.name != name) continue;
      EXPECT_EQ(file.result, result) << name;
      return test::expect_one_line_with(file.damage, parts);
    }
    ADD_FAILURE() << name << " is not told";
  }
  /// Both loading and check_folder() refuse the folder with one line that has `parts`.
  void expect_told(const std::vector<std::string>& parts) {
    expect_error([&] { load(); }, ErrorCode::kInvalidArgument, parts);
    const std::vector<std::string> found = damages();
    ASSERT_EQ(found.size(), 1U);
    test::expect_one_line_with(found[0], parts);
  }

  test::TempFolder dir_;
  fs::path to_ = dir_.path() / "to";
  ThreadPool pool_{2};
  Backend backend_ = select_backend("auto", "auto", DType::kBF16);
};

TEST_F(DamageTest, AWholeFolderIsRight) {
  load();
  load(true);
  std::vector<std::string> names;
  for (const FileCheck& file : check_folder(to_, pool_)) {
    EXPECT_EQ(file.result, FileCheck::Result::kRight) << file.damage;
    EXPECT_EQ(file.bytes, static_cast<int64_t>(fs::file_size(to_ / file.name)));
    names.push_back(file.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"ferry.json", "chat_template.json", "checksums.json", "config.json",
                                             "generation_config.json", kIndexFile, "preprocessor_config.json", "tokenizer.json",
                                             "tokenizer_config.json", kWeights}));
}

TEST_F(DamageTest, EveryByteOfTheWeightsCounts) {
  SafetensorsFile file(to_ / kWeights);
  const std::optional<PackedMark> mark = read_packed_mark(to_);
  const FolderChecksums checksums = read_packed_checksums(to_, *mark);
  file.expect(checksums.at(kWeights));
  const FileDescriptor bytes(::open((to_ / kWeights).c_str(), O_RDWR | O_CLOEXEC));
  int64_t num_bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    const int64_t begin = offset_of(tensor.name, 0);
    for (int64_t at = 0; at < tensor.bytes; ++at, ++num_bytes) {
      test::flip_bit(bytes, begin + at, static_cast<int>(at % 8));  // the mapping shows it
      EXPECT_THROW(check_bytes(tensor, 0, tensor.bytes), Error) << tensor.name << " byte " << at;
      test::flip_bit(bytes, begin + at, static_cast<int>(at % 8));
    }
  }
  for (const TensorInfo& tensor : file.tensors()) check_bytes(tensor, 0, tensor.bytes);
  EXPECT_GT(num_bytes, 30'000);
  for (int64_t at = 0; at < file.size() - num_bytes; at += 7) {
    flip(kWeights, at, static_cast<int>(at % 8));
    EXPECT_EQ(damages().size(), 1U) << "byte " << at << " of the header";
    flip(kWeights, at, static_cast<int>(at % 8));
  }
  EXPECT_TRUE(damages().empty());
}

TEST_F(DamageTest, EveryKindOfSectionIsToldByName) {
  const std::string panels = std::string(kExperts) + "1.down_proj.panels";
  struct Case {
    std::string tensor;
    int64_t at;
  };
  for (const Case& c : {Case{panels, 5},
                        {panels, -3},
                        {"lm_head.panels", 7},
                        {"lm_head.panels", -2},
                        {"model.language_model.norm.weight", 1},
                        {"model.language_model.layers.0.self_attn.q_proj.weight", 100},
                        {"model.language_model.layers.0.mlp.gate.weight", 3},
                        {kEmbedding, 64}}) {
    const int64_t offset = offset_of(c.tensor, c.at);
    flip(kWeights, offset);
    expect_told({kWeights, "tensor " + c.tensor, "is damaged", "checksum"});
    flip(kWeights, offset);
  }
  load();
  for (const char* name : {"config.json", kIndexFile, kChecksumsFile}) {
    const auto size = static_cast<int64_t>(fs::file_size(to_ / name));
    for (const int64_t offset : {int64_t{0}, size / 2, size - 1}) {
      flip(name, offset);
      expect_error([&] { Checkpoint::open(to_); }, ErrorCode::kInvalidArgument, {name, "not as `ferry quantize` wrote it"});
      EXPECT_EQ(damages().size(), 1U);
      flip(name, offset);
    }
  }
  fs::remove(to_ / "config.json");
  expect_error([&] { Checkpoint::open(to_); }, ErrorCode::kNotFound, {"config.json"});
}

TEST_F(DamageTest, EveryFileBesideTheWeightsIsComparedWhenTheFolderIsOpened) {
  std::vector<std::string> names{kConfigFile, kGenerationConfigFile, kIndexFile, kChecksumsFile};
  names.insert(names.end(), kTextFiles.begin(), kTextFiles.end());
  for (const std::string& name : names) {
    flip(name, 0);  // JSON no more
    expect_error([&] { Checkpoint::open(to_); }, ErrorCode::kInvalidArgument, {name, "not as `ferry quantize` wrote it"});
    flip(name, 0);
    fs::rename(to_ / name, to_ / "away");
    expect_error([&] { Checkpoint::open(to_); }, ErrorCode::kNotFound, {name, "is missing", "ferry.json"});
    expect_result(name, FileCheck::Result::kMissing, {name, "is missing"});
    fs::rename(to_ / "away", to_ / name);
  }
  EXPECT_TRUE(damages().empty());
}

TEST_F(DamageTest, ADamagedConfigIsNotCalledBadJson) {
  for (const char* name : {kConfigFile, kGenerationConfigFile}) {
    flip(name, 0);
    expect_error([&] { load_config(to_); }, ErrorCode::kInvalidArgument, {name, "not as `ferry quantize` wrote it"});
    flip(name, 0);
  }
  load_config(to_);
}

TEST_F(DamageTest, AFolderThatLostItsMarkIsDamaged) {
  fs::remove(to_ / kPackedMark);
  const std::vector<std::string> parts{"ferry.json: is missing", "checksums.json", "allowed"};
  expect_error([&] { Checkpoint::open(to_); }, ErrorCode::kInvalidArgument, parts);
  expect_error([&] { load_config(to_); }, ErrorCode::kInvalidArgument, parts);
  expect_error([&] { plan_weights(to_, std::nullopt); }, ErrorCode::kInvalidArgument, parts);
  expect_result(kPackedMark, FileCheck::Result::kMissing, parts);
  const fs::path plain = dir_.path() / "from";
  std::ofstream(plain / kChecksumsFile) << R"({"config.json": "of another program"})";
  Checkpoint::open(plain);
  EXPECT_EQ(check_folder(plain, pool_).front().result, FileCheck::Result::kUnknown);
}

TEST_F(DamageTest, FilesThatWereAddedAreTold) {
  const std::vector<std::string> parts{"is not in ferry.json", "allowed"};
  for (const char* name : {"mtp.safetensors", "other \x1b.safetensors", "chat_template.jinja", "merges.txt"}) {
    std::ofstream(to_ / name) << "text";
    expect_result(name, FileCheck::Result::kDamaged, parts);
    if (name == std::string("mtp.safetensors"))
      expect_error([&] { Checkpoint::open(to_); }, ErrorCode::kInvalidArgument, {name, parts[0], parts[1]});
    else
      Checkpoint::open(to_);
    fs::remove(to_ / name);
  }
  std::ofstream(to_ / "notes.txt") << "nothing reads it";
  EXPECT_TRUE(damages().empty());
}

TEST_F(DamageTest, ALoopOfLinksIsOneLine) {
  for (const char* name : {kPackedMark, "config.json", "tokenizer.json", "mtp.safetensors", kWeights}) {
    const bool was_there = fs::exists(to_ / name);
    if (was_there) fs::rename(to_ / name, to_ / "away");
    fs::create_symlink(name, to_ / name);
    const bool is_added = name == std::string("mtp.safetensors");
    expect_error([&] { load(); }, is_added ? ErrorCode::kInvalidArgument : ErrorCode::kNotFound, {name});
    expect_result(name, FileCheck::Result::kDamaged, {name});
    fs::remove(to_ / name);
    if (was_there) fs::rename(to_ / "away", to_ / name);
  }
  load();
}

TEST_F(DamageTest, AShorterFileIsRefused) {
  fs::resize_file(to_ / kWeights, fs::file_size(to_ / kWeights) - 1);
  expect_told({kWeights, "truncated"});
  fs::resize_file(to_ / kWeights, 0);
  expect_told({kWeights, "0 bytes"});
  fs::remove(to_ / kWeights);
  expect_result(kWeights, FileCheck::Result::kMissing, {kWeights, "is missing"});
  fs::resize_file(to_ / kChecksumsFile, 100);
  expect_error([&] { load(); }, ErrorCode::kInvalidArgument, {kChecksumsFile});
  EXPECT_EQ(damages().size(), 1U);
}

TEST_F(DamageTest, MappedPanelsOfALargeFolderAreReadOnlyWhereTheyAreUsedNext) {
  enlarge();
  const std::string panels = std::string(kExperts) + "1.down_proj.panels";
  flip(kWeights, offset_of(panels, 9), 3);
  load();
  load_expert(0);
  expect_error([&] { load_expert(1); }, ErrorCode::kInvalidArgument, {kWeights, panels, "is damaged"});
  expect_error([&] { load(/*check_finite=*/true); }, ErrorCode::kInvalidArgument, {kWeights, panels, "is damaged"});
  EXPECT_EQ(damages().size(), 1U);
}

TEST_F(DamageTest, AFolderOfAnOlderFerryLoadsAndHasNoChecksums) {
  write_packed_mark(to_, {.quantization = read_packed_mark(to_)->quantization, .files = {}});
  fs::remove(to_ / kChecksumsFile);
  load();
  flip(kWeights, offset_of(kEmbedding, 0));
  load();
  const std::vector<FileCheck> files = check_folder(to_, pool_);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].result, FileCheck::Result::kUnknown);
  EXPECT_EQ(files[0].name, kWeights);
}

TEST_F(DamageTest, APlainFolderHasItsStructureChecked) {
  const std::vector<FileCheck> files = check_folder(dir_.path() / "from", pool_);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].result, FileCheck::Result::kUnknown);
  const fs::path weights = dir_.path() / "from" / files[0].name;
  fs::resize_file(weights, fs::file_size(weights) - 1);
  expect_error([&] { check_folder(dir_.path() / "from", pool_); }, ErrorCode::kInvalidArgument, {files[0].name, "truncated"});
}

TEST(Checksums, AnExpertOfAStackHasAPieceOfItsOwn) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  EXPECT_EQ(checksum_piece_bytes(StoredType::kBF16, {128, 1024, 2048}), 4 * kMiB);
  EXPECT_EQ(checksum_piece_bytes(StoredType::kBF16, {128, 4096, 2048}), 16 * kMiB);
  EXPECT_EQ(checksum_piece_bytes(StoredType::kBF16, {128, 256, 128}), 64 << 10);
  EXPECT_EQ(checksum_piece_bytes(StoredType::kBF16, {8192, 1, 4}), 4 * kMiB) << "a convolution is no stack";
  EXPECT_EQ(checksum_piece_bytes(StoredType::kBF16, {100'000, 2560}), 4 * kMiB / 5120 * 5120);
  EXPECT_EQ(checksum_piece_bytes(StoredType::kU8, {4, 5 * kMiB}), 5 * kMiB);
  EXPECT_EQ(checksum_piece_bytes(StoredType::kF32, {}), 4 * kMiB);
  EXPECT_EQ(checksum_piece_bytes(StoredType::kF32, {7, 0}), 4 * kMiB);
  EXPECT_EQ(checksum_piece_bytes(StoredType::kF32, {0, INT64_MAX, 2}), 4 * kMiB) << "no bytes, whatever else it says";
}

/// The checksums of data that come in parts, for a file that holds them as tensor "t" behind an empty one.
FileChecksums checksums_of(std::span<const std::byte> data, int64_t piece_bytes) {
  ChecksumMaker maker;
  maker.begin({});
  maker.expect("u", 0, piece_bytes);
  maker.expect("t", std::ssize(data), piece_bytes);
  for (std::size_t at = 0; at < data.size(); at += 333)
    maker.add(data.subspan(at, std::min<std::size_t>(333, data.size() - at)));
  FolderChecksums folder;
  folder.emplace("f", maker.take());
  return parse_checksums(write_checksums(folder), "made").at("f");
}

TEST(Checksums, PiecesAreComparedOneByOne) {
  constexpr int64_t kPiece = 1000;
  std::vector<std::byte> data(3500);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7);
  OpenChecksums open(checksums_of(data, kPiece).pieces);
  ASSERT_EQ(open.pieces.size(), 4U);
  const TensorChecksums checksums{.piece_bytes = kPiece, .pieces = open.pieces, .was_right = open.was_right};
  const TensorInfo tensor{.name = "t",
                          .shape = {3500},
                          .data = data.data(),
                          .bytes = std::ssize(data),
                          .file = "f",
                          .note = "",
                          .checksums = &checksums};
  data[2100] ^= std::byte{4};
  check_bytes(tensor, 0, 2000);
  check_bytes(tensor, 3000, 500);
  expect_error([&] { check_bytes(tensor, 1999, 2); }, ErrorCode::kInvalidArgument, {"f: tensor t", "bytes 2000 to 2999"});
  data[2100] ^= std::byte{4};
  check_bytes(tensor, 0, 3500);
  data[2100] ^= std::byte{4};
  check_bytes(tensor, 2000, 1000, nullptr, Recheck::kNone);
  check_bytes(tensor, 2500, 100);
  EXPECT_THROW(check_bytes(tensor, 2000, 1000), Error) << "read whole once more";
}

TEST(Checksums, RefusesWhatIsNoListOfThem) {
  const auto refuse = [](const std::string& text, const std::vector<std::string>& parts) {
    expect_error([&] { parse_checksums(text, "c.json"); }, ErrorCode::kInvalidArgument, parts);
  };
  const auto with = [](const std::string& weights) {
    return R"({"format":"ferry checksums","version":1,"algorithm":"xxh3-64","weights":)" + weights + "}";
  };
  EXPECT_TRUE(parse_checksums(with("{}"), "c.json").empty());
  refuse("", {"c.json"});
  refuse("[]", {"c.json", "allowed"});
  refuse(R"({"format":"ferry checksums","version":2,"algorithm":"xxh3-64","weights":{}})", {"c.json", "version 1"});
  refuse(with("[]"), {"c.json"});
  refuse(with(R"({"../f":{}})"), {"'../f'"});
  refuse(with(R"({"f":1})"), {"'f'", "bytes, and header and pieces"});
  const auto pieces = [&](const std::string& value) {
    return with(R"({"f":{"bytes":1,"header":"0123456789abcdef","pieces":)" + value + "}}");
  };
  EXPECT_EQ(parse_checksums(pieces(R"("0123456789abcdef0000000000000001")"), "c.json").at("f").pieces,
            (std::vector<uint64_t>{0x0123456789abcdef, 1}));
  for (const char* bad : {"1", R"("0123")", R"("0123456789ABCDEF")", R"("0123456789abcdef0")", "null"})
    refuse(pieces(bad), {"'f'", "hexadecimal digits"});
}

}  // namespace
}  // namespace ferry
