#include "runtime/checkpoint/safetensors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "runtime/base/error.h"
#include "runtime/checkpoint/safetensors_writer.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for each test, removed with what is in it.
class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() {
    std::string name = (fs::temp_directory_path() / "ferry_safetensors_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  ~SafetensorsTest() override { fs::remove_all(dir_); }

  /// Writes length, header and `data_bytes` bytes 0, 1, 2, ….
  fs::path write_raw(const std::string& header, int64_t data_bytes, const std::string& name = "model.safetensors") {
    const uint64_t length = header.size();
    std::string text(reinterpret_cast<const char*>(&length), sizeof(length));
    text += header;
    for (int64_t i = 0; i < data_bytes; ++i) text += static_cast<char>(i);
    return write_text(name, text);
  }
  fs::path write_text(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return dir_ / name;
  }
  std::string read_all(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  fs::path dir_;
};

/// Runs `fn`, which must throw an Error with `code` whose one-line message holds every string of `parts`.
template <class Fn>
void expect_refusal(Fn&& fn, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_STREQ(error_code_name(e.code()), error_code_name(code)) << e.what();
    for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    EXPECT_LT(std::strlen(e.what()), 1000U);
    return;
  }
  FAIL() << "no error; expected one that says " << (parts.empty() ? "" : parts.back());
}

std::string tensor_entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST_F(SafetensorsTest, ReadsTensorsWithTypesShapesAndUnalignedData) {
  // A header of odd length puts the float at an odd address.
  std::string header = R"({"__metadata__":{"format":"pt"},"b":)" + tensor_entry("U8", "[3]", "[0,3]") + R"(,"a":)" +
                       tensor_entry("F32", "[1,2]", "[3,11]") + R"(,"scalar":)" + tensor_entry("BF16", "[]", "[11,13]") +
                       R"(,"empty":)" + tensor_entry("I64", "[0,7]", "[13,13]") + "}";
  if (header.size() % 2 == 0) header += ' ';
  const SafetensorsFile file(write_raw(header, 13));

  ASSERT_EQ(file.tensors().size(), 4U);
  const TensorInfo* a = file.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, StoredType::kF32);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(a->shape_string(), "[1, 2]");
  EXPECT_EQ(a->bytes, 8);
  EXPECT_EQ(a->file, file.path());
  EXPECT_EQ(a->data[0], std::byte{3});
  EXPECT_EQ(a->data[7], std::byte{10});
  EXPECT_EQ(file.find("scalar")->bytes, 2);
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(file.find("empty")->bytes, 0);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.find("__metadata__"), nullptr);
}

TEST_F(SafetensorsTest, KnowsEveryType) {
  const std::vector<std::pair<std::string, int>> types = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"C64", 8}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U64", 8},  {"U32", 4},     {"U16", 2},     {"U8", 1},      {"BOOL", 1}};
  for (const auto& [name, bytes] : types) {
    const SafetensorsFile file(
        write_raw(R"({"x":)" + tensor_entry(name, "[3]", "[0," + std::to_string(3 * bytes) + "]") + "}", 3 * bytes));
    EXPECT_EQ(stored_type_name(file.find("x")->dtype), name);
    EXPECT_EQ(stored_type_bytes(file.find("x")->dtype), bytes);
  }
}

TEST_F(SafetensorsTest, RefusesMalformedTensors) {
  struct Case {
    std::string entry;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {tensor_entry("F4", "[2]", "[0,8]"), {"tensor 'x'", "dtype", "F4"}},
      {R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})", {"dtype", "7"}},
      {R"({"shape":[2],"data_offsets":[0,8]})", {"no 'dtype'"}},
      {R"({"dtype":"F32","data_offsets":[0,8]})", {"no 'shape'"}},
      {R"({"dtype":"F32","shape":[2]})", {"no 'data_offsets'"}},
      {R"([1,2])", {"not an object"}},
      {tensor_entry("F32", "2", "[0,8]"), {"shape", "not an array"}},
      {tensor_entry("F32", "[-2]", "[0,8]"), {"shape", "-2"}},
      {tensor_entry("F32", "[2.0]", "[0,8]"), {"shape", "2.0"}},
      {tensor_entry("F32", "[\"2\"]", "[0,8]"), {"shape"}},
      {tensor_entry("F32", "[9223372036854775808]", "[0,8]"), {"shape", "9223372036854775808"}},
      {tensor_entry("F32", "[99999999999999999999999]", "[0,8]"), {"shape"}},
      {tensor_entry("F32", "[4294967296,4294967296]", "[0,0]"), {"overflows"}},
      {tensor_entry("F32", "[4611686018427387904]", "[0,0]"), {"overflows"}},
      {tensor_entry("F32", "[2]", "[0]"), {"data_offsets", "[begin, end]"}},
      {tensor_entry("F32", "[2]", "[8,0]"), {"data_offsets", "[8,0]"}},
      {tensor_entry("F32", "[2]", "[-8,0]"), {"data_offsets"}},
      {tensor_entry("F32", "[2]", "\"0,8\""), {"data_offsets"}},
      {tensor_entry("F32", "[5]", "[0,20]"), {"20", "16 bytes", "truncated"}},
      {tensor_entry("F32", "[2]", "[9223372036854775807,9223372036854775807]"), {"9223372036854775807"}},
      {tensor_entry("F32", "[2]", "[0,4]"), {"span 4", "[2] of F32 needs 8"}},
      {tensor_entry("BF16", "[3]", "[0,8]"), {"span 8", "needs 6"}},
      {R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", {"'dtype' occurs twice"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.entry);
    const fs::path path = write_raw(R"({"x":)" + c.entry + "}", 16);
    std::vector<std::string> parts = c.parts;
    parts.push_back(path.string());
    expect_refusal([&] { SafetensorsFile file(path); }, ErrorCode::kInvalidArgument, parts);
  }
}

TEST_F(SafetensorsTest, RefusesDuplicatesOverlapsAndHoles) {
  const auto two = [](const std::string& b, const std::string& offsets) {
    return R"({"a":)" + tensor_entry("U8", "[5]", "[0,5]") + ",\"" + b + "\":" + tensor_entry("U8", "[5]", offsets) + "}";
  };
  expect_refusal([&] { SafetensorsFile file(write_raw(two("a", "[5,10]"), 16)); }, ErrorCode::kInvalidArgument,
                 {"'a'", "twice"});
  expect_refusal([&] { SafetensorsFile file(write_raw(two("b", "[3,8]"), 16)); }, ErrorCode::kInvalidArgument,
                 {"'a' and 'b'", "overlap by 2 bytes"});
  expect_refusal([&] { SafetensorsFile file(write_raw(two("b", "[7,12]"), 12)); }, ErrorCode::kInvalidArgument,
                 {"2 bytes before tensor 'b'", "back to back"});
  const SafetensorsFile file(write_raw(two("b", "[5,10]"), 10));
  EXPECT_EQ(file.find("b")->data[0], std::byte{5});
}

TEST_F(SafetensorsTest, EveryByteBelongsToATensor) {
  const auto refuse = [&](const std::string& header, int64_t data_bytes, const std::vector<std::string>& parts) {
    expect_refusal([&] { SafetensorsFile file(write_raw(header, data_bytes)); }, ErrorCode::kInvalidArgument, parts);
  };
  const std::string one = R"({"a":)" + tensor_entry("U8", "[5]", "[0,5]") + "}";
  EXPECT_EQ(SafetensorsFile(write_raw(one, 5)).tensors().size(), 1U);
  refuse(one, 6, {"1 bytes after the last tensor"});
  refuse(one, 4096, {"4091 bytes after the last tensor"});
  refuse(R"({"a":)" + tensor_entry("U8", "[5]", "[3,8]") + "}", 8, {"3 bytes before tensor 'a'"});
  refuse("{}", 1, {"1 bytes after the last tensor"});
  refuse(R"({"__metadata__":{}})", 1, {"1 bytes after the last tensor"});
  EXPECT_TRUE(SafetensorsFile(write_raw("{}", 0)).tensors().empty());
  // A tensor without elements stands between two others or at an end, never inside one.
  const auto with_empty = [&](const std::string& at) {
    return R"({"a":)" + tensor_entry("U8", "[5]", "[0,5]") + R"(,"e":)" + tensor_entry("U8", "[0]", "[" + at + "," + at + "]") +
           "}";
  };
  EXPECT_EQ(SafetensorsFile(write_raw(with_empty("0"), 5)).tensors().size(), 2U);
  EXPECT_EQ(SafetensorsFile(write_raw(with_empty("5"), 5)).tensors().size(), 2U);
  refuse(with_empty("3"), 5, {"'a' and 'e' overlap by 2 bytes"});
}

TEST_F(SafetensorsTest, RefusesMalformedFiles) {
  const auto refuse = [&](const fs::path& path, const std::vector<std::string>& parts) {
    expect_refusal([&] { SafetensorsFile file(path); }, ErrorCode::kInvalidArgument, parts);
  };
  const auto with_length = [&](uint64_t length, const std::string& rest) {
    return write_text("x.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + rest);
  };
  refuse(write_text("x.safetensors", ""), {"0 bytes"});
  refuse(write_text("x.safetensors", "1234567"), {"7 bytes"});
  refuse(with_length(3, "{}"), {"header length 3", "truncated"});
  refuse(with_length(100'000'001, "{}"), {"100000001", "100000000"});
  refuse(with_length(UINT64_MAX, "{}"), {"18446744073709551615"});
  refuse(write_raw("", 4), {"JSON"});
  refuse(write_raw("{\"a\":", 4), {"JSON"});
  refuse(write_raw("{} x", 4), {"JSON"});
  refuse(write_raw("[]", 4), {"not a JSON object"});
  refuse(write_raw("7", 4), {"not a JSON object"});
  refuse(write_raw("{\"\xff\xfe\":1}", 4), {"JSON"});
  refuse(write_raw("{\"" + std::string(100'000, 'n') + "\n", 4), {"JSON"});
  refuse(write_raw("{\"" + std::string(100'000, 'n') + "\":1}", 4), {"nnn…"});
  refuse(write_raw("{\"line\\nbreak\":1}", 4), {R"('line\x0abreak')"});
  refuse(write_raw(std::string(5'000'000, '['), 4), {"nested"});
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  refuse(write_raw(objects, 4), {"nested"});
  refuse(dir_, {"not a regular file"});
  ASSERT_EQ(::mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  refuse(dir_ / "fifo", {"not a regular file"});
  expect_refusal([&] { SafetensorsFile file(dir_ / "missing"); }, ErrorCode::kNotFound, {"missing", "No such file"});
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string header =
      R"({"a":)" + tensor_entry("F32", "[3]", "[0,12]") + R"(,"b":)" + tensor_entry("U8", "[5]", "[12,17]") + "}";
  const std::string whole = read_all(write_raw(header, 17));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const fs::path path = write_text("cut.safetensors", whole.substr(0, bytes));
    expect_refusal([&] { SafetensorsFile file(path); }, ErrorCode::kInvalidArgument, {"cut.safetensors"});
  }
  EXPECT_EQ(SafetensorsFile(write_text("cut.safetensors", whole)).tensors().size(), 2U);
}

TEST_F(SafetensorsTest, WriteThenReadGivesTheSameTensors) {
  const std::vector<float> a = {1.5F, -2.0F, 3.25F};
  const std::vector<int64_t> b = {-7, 1LL << 40};
  const std::vector<TensorToWrite> tensors = {
      {"z.first", StoredType::kF32, {3, 1}, std::as_bytes(std::span(a))},
      {"é\"quote", StoredType::kI64, {2}, std::as_bytes(std::span(b))},
      {"empty", StoredType::kU8, {0}, {}},
  };
  write_safetensors(dir_ / "out.safetensors", tensors, {{"made_by", "ferry"}});
  const std::string once = read_all(dir_ / "out.safetensors");
  write_safetensors(dir_ / "out.safetensors", tensors, {{"made_by", "ferry"}});
  EXPECT_EQ(read_all(dir_ / "out.safetensors"), once);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1) << "a temporary file was left behind";
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, once.data(), 8);
  EXPECT_EQ(header_bytes % 8, 0U);
  EXPECT_EQ(once.size(), 8 + header_bytes + 12 + 16);

  const SafetensorsFile file(dir_ / "out.safetensors");
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(std::memcmp(file.find("z.first")->data, a.data(), 12), 0);
  EXPECT_EQ(file.find("z.first")->shape, (std::vector<int64_t>{3, 1}));
  EXPECT_LT(file.find("z.first")->data, file.find("é\"quote")->data) << "tensors are not in the given order";
  EXPECT_EQ(std::memcmp(file.find("é\"quote")->data, b.data(), 16), 0);
}

TEST_F(SafetensorsTest, WriteFailuresAreErrors) {
  const std::vector<std::byte> data(1 << 16);
  const std::vector<TensorToWrite> tensors = {{"x", StoredType::kU8, {1 << 16}, data}};
  expect_refusal([&] { write_safetensors(dir_ / "no" / "such", tensors); }, ErrorCode::kFailedPrecondition,
                 {(dir_ / "no" / "such").string(), "No such file"});
  fs::create_directory(dir_ / "folder");
  expect_refusal([&] { write_safetensors(dir_ / "folder", tensors); }, ErrorCode::kFailedPrecondition, {"folder"});
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1) << "a temporary file was left behind";
}

TEST_F(SafetensorsTest, AFullDiskIsAnErrorAndLeavesTheOldFile) {
  const std::vector<std::byte> data(1 << 16);
  const std::vector<TensorToWrite> tensors = {{"x", StoredType::kU8, {1 << 16}, data}};
  write_text("out.safetensors", "old");
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{5000, old_limit.rlim_max};  // bytes that a file may have, in place of a disk that is full
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  expect_refusal([&] { write_safetensors(dir_ / "out.safetensors", tensors); }, ErrorCode::kResourceExhausted,
                 {"out.safetensors"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(read_all(dir_ / "out.safetensors"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1) << "a temporary file was left behind";
}

class CheckpointTest : public SafetensorsTest {
 protected:
  void write_one(const std::string& file, const std::string& tensor, int64_t bytes = 3) {
    write_raw("{\"" + tensor +
                  "\":" + tensor_entry("U8", "[" + std::to_string(bytes) + "]", "[0," + std::to_string(bytes) + "]") + "}",
              bytes, file);
  }
  void write_index(const std::string& weight_map) {
    write_text("model.safetensors.index.json", R"({"metadata":{"total_size":6},"weight_map":)" + weight_map + "}");
  }
};

TEST_F(CheckpointTest, FindsAnMtpLayerThatTheIndexDoesNotKnow) {
  write_one("1.safetensors", "a");
  write_one("mtp.safetensors", "mtp.fc.weight");
  write_index(R"({"a":"1.safetensors"})");
  EXPECT_EQ(Checkpoint::open(dir_).names(), (std::vector<std::string_view>{"a", "mtp.fc.weight"}));
  write_one("mtp.safetensors", "b");
  EXPECT_EQ(Checkpoint::open(dir_).names(), std::vector<std::string_view>{"a"}) << "nothing else is taken from it";
  write_one("2.safetensors", "mtp.fc.weight");
  write_one("mtp.safetensors", "mtp.fc.weight");
  write_index(R"({"mtp.fc.weight":"2.safetensors"})");
  EXPECT_EQ(Checkpoint::open(dir_).find("mtp.fc.weight")->file, (dir_ / "2.safetensors").string());
}

TEST_F(CheckpointTest, ALoopOfLinksCannotBeOpened) {
  write_one("model.safetensors", "a");
  fs::create_symlink("model.safetensors.index.json", dir_ / "model.safetensors.index.json");
  expect_refusal([&] { Checkpoint::open(dir_); }, ErrorCode::kNotFound, {"cannot open", "index.json"});
  fs::create_symlink("loop", dir_ / "loop");
  expect_refusal([&] { Checkpoint::open(dir_ / "loop"); }, ErrorCode::kNotFound, {"loop"});
}

TEST_F(CheckpointTest, OpensTheFilesThatTheIndexNames) {
  write_one("odd name.safetensors", "b");
  write_one("1.safetensors", "a");
  write_one("unlisted.safetensors", "c");
  write_index(R"({"a":"1.safetensors","b":"odd name.safetensors"})");
  const Checkpoint checkpoint = Checkpoint::open(dir_);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string_view>{"a", "b"}));
  ASSERT_NE(checkpoint.find("b"), nullptr);
  EXPECT_EQ(checkpoint.find("b")->file, (dir_ / "odd name.safetensors").string());
  EXPECT_EQ(checkpoint.find("c"), nullptr);
}

TEST_F(CheckpointTest, OpensASingleFileByItsUsualNameOrAlone) {
  write_one("weights.safetensors", "a");
  EXPECT_NE(Checkpoint::open(dir_).find("a"), nullptr);
  write_one("more.safetensors", "b");
  expect_refusal([&] { Checkpoint::open(dir_); }, ErrorCode::kNotFound, {dir_.string(), "2 *.safetensors"});
  write_one("model.safetensors", "c");
  EXPECT_EQ(Checkpoint::open(dir_).names(), (std::vector<std::string_view>{"c"}));
}

TEST_F(CheckpointTest, RefusesBadFolders) {
  expect_refusal([&] { Checkpoint::open(dir_ / "missing"); }, ErrorCode::kNotFound, {"missing"});
  expect_refusal([&] { Checkpoint::open(dir_); }, ErrorCode::kNotFound, {"0 *.safetensors"});
  write_one("1.safetensors", "a");
  const auto refuse = [&](const std::string& weight_map, ErrorCode code, const std::vector<std::string>& parts) {
    write_index(weight_map);
    expect_refusal([&] { Checkpoint::open(dir_); }, code, parts);
  };
  refuse(R"({"a":"2.safetensors"})", ErrorCode::kNotFound, {"2.safetensors"});
  refuse(R"({"a":"1.safetensors","b":"1.safetensors"})", ErrorCode::kInvalidArgument, {"'b'", "1.safetensors"});
  refuse(R"({"a":"1.safetensors","a":"1.safetensors"})", ErrorCode::kInvalidArgument, {"'a' occurs twice"});
  refuse(R"({"a":"../1.safetensors"})", ErrorCode::kInvalidArgument, {"'a'", "inside the checkpoint folder"});
  refuse(R"({"a":"sub/../../1.safetensors"})", ErrorCode::kInvalidArgument, {"inside the checkpoint folder"});
  refuse("{\"a\":\"" + (dir_ / "1.safetensors").string() + "\"}", ErrorCode::kInvalidArgument,
         {"inside the checkpoint folder"});
  refuse(R"({"a":"1.safetensors\u0000x"})", ErrorCode::kInvalidArgument, {"inside the checkpoint folder"});
  refuse(R"({"a":""})", ErrorCode::kInvalidArgument, {"inside the checkpoint folder"});
  refuse(R"({"a":7})", ErrorCode::kInvalidArgument, {"'a'", "not a string"});
  refuse(R"([])", ErrorCode::kInvalidArgument, {"weight_map"});
  refuse(R"({"a")", ErrorCode::kInvalidArgument, {"JSON"});
  write_text("model.safetensors.index.json", "[]");
  expect_refusal([&] { Checkpoint::open(dir_); }, ErrorCode::kInvalidArgument, {"weight_map"});
}

/// Pages of [begin, begin + bytes) that this process has mapped (bit 63 of pagemap's u64 per page), -1 where unknown.
int64_t resident_pages(const std::byte* begin, int64_t bytes) {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(begin) / page_bytes;
  const auto last = (reinterpret_cast<std::uintptr_t>(begin) + static_cast<std::size_t>(bytes) - 1) / page_bytes;
  std::vector<uint64_t> entries(last - first + 1);
  const int fd = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const auto want = static_cast<ssize_t>(entries.size() * sizeof(uint64_t));
  const bool is_read =
      ::pread(fd, entries.data(), static_cast<std::size_t>(want), static_cast<off_t>(first * sizeof(uint64_t))) == want;
  ::close(fd);
  return is_read ? std::count_if(entries.begin(), entries.end(), [](uint64_t entry) { return entry >> 63 != 0; }) : -1;
}

TEST_F(CheckpointTest, DroppedPagesLeaveTheProcessAndReadTheSameAgain) {
  constexpr int64_t kBytes = (16 << 20) + 77;
  write_one("model.safetensors", "a", kBytes);
  const Checkpoint checkpoint = Checkpoint::open(dir_);
  const TensorInfo& tensor = *checkpoint.find("a");
  const auto sum = [&] {
    uint64_t total = 0;
    for (int64_t i = 0; i < tensor.bytes; ++i) total += static_cast<uint64_t>(tensor.data[i]) * static_cast<uint64_t>(i % 251);
    return total;
  };
  const int64_t untouched = resident_pages(tensor.data, tensor.bytes);
  const uint64_t before = sum();
  const int64_t touched = resident_pages(tensor.data, tensor.bytes);
  checkpoint.drop_pages(tensor, 12345, kBytes - 12345);
  const int64_t dropped = resident_pages(tensor.data, tensor.bytes);
  EXPECT_EQ(sum(), before);
  checkpoint.drop_pages(tensor, 0, 0);
  checkpoint.drop_pages(tensor, kBytes, 0);
  checkpoint.drop_pages(tensor, 1, 5);
  EXPECT_EQ(sum(), before);
  if (untouched < 0) GTEST_SKIP() << "no /proc/self/pagemap here";
  EXPECT_LE(untouched, 1024) << "opening read the data";  // the system maps up to 2 MiB around a page that is touched
  EXPECT_GT(touched, 4000);
  EXPECT_LE(dropped, 5);
}

}  // namespace
}  // namespace ferry
