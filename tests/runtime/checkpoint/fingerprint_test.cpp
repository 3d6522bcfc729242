#include "runtime/checkpoint/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/checkpoint/safetensors_writer.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

std::string fingerprint_of(const test::TinyModel& model, int num_shards = 1) {
  test::TempFolder folder;
  model.write(folder.path(), num_shards);
  return checkpoint_fingerprint(Checkpoint::open(folder.path()));
}

TEST(Fingerprint, IsTheSameForACopyHoweverItIsCutIntoFiles) {
  const test::TinyModel model;
  const std::string fingerprint = fingerprint_of(model);
  EXPECT_EQ(fingerprint.size(), 16U);
  EXPECT_EQ(fingerprint.find_first_not_of("0123456789abcdef"), std::string::npos) << fingerprint;
  EXPECT_EQ(fingerprint_of(model), fingerprint);
  EXPECT_EQ(fingerprint_of(model, 3), fingerprint);
}

TEST(Fingerprint, DiffersWhereAByteANameAShapeOrATypeDoes) {
  const test::TinyModel model;
  const std::string fingerprint = fingerprint_of(model);
  const auto expect_other = [&](const char* what, const std::function<void(test::TinyModel&)>& change) {
    test::TinyModel other = model;
    change(other);
    EXPECT_NE(fingerprint_of(other), fingerprint) << what;
  };
  expect_other("the first byte", [](auto& m) { m.tensors.begin()->second.data.front() ^= std::byte{1}; });
  expect_other("a name", [](auto& m) {
    auto tensor = m.tensors.extract(m.tensors.begin());
    tensor.key() += "2";  // it stays the first one
    m.tensors.insert(std::move(tensor));
  });
  expect_other("a shape of as many bytes", [](auto& m) {
    auto& shape = m.tensors.begin()->second.shape;
    shape.push_back(1);
  });
  expect_other("a type of as many bytes", [](auto& m) { m.tensors.begin()->second.dtype = StoredType::kF16; });
  expect_other("a tensor less", [](auto& m) { m.tensors.erase(m.tensors.begin()); });
}

/// Of one tensor with these bytes.
std::string fingerprint_of_bytes(const std::vector<std::byte>& bytes) {
  test::TempFolder folder;
  const std::vector<TensorToWrite> tensors{
      {.name = "a", .dtype = StoredType::kU8, .shape = {std::ssize(bytes)}, .data = bytes}};
  write_safetensors(folder.path() / "model.safetensors", tensors);
  return checkpoint_fingerprint(Checkpoint::open(folder.path()));
}

TEST(Fingerprint, LooksAtAllOfASmallTensorAndAtPiecesOfALargeOne) {
  std::vector<std::byte> small(10000, std::byte{7}), large(std::size_t{8} << 20, std::byte{7});
  const auto expect_seen = [](std::vector<std::byte>& bytes, const std::string& fingerprint, std::size_t at) {
    bytes[at] ^= std::byte{1};
    EXPECT_NE(fingerprint_of_bytes(bytes), fingerprint) << at << " of " << bytes.size();
    bytes[at] ^= std::byte{1};
  };
  const std::string of_small = fingerprint_of_bytes(small);
  for (const std::size_t at : {0, 4095, 4096, 8191, 8192, 9999}) expect_seen(small, of_small, at);
  const std::string of_large = fingerprint_of_bytes(large);
  EXPECT_NE(of_large, of_small);
  for (const std::size_t piece : {0, 1, 100, 255}) {  // of 256, each at the begin of as many bytes
    expect_seen(large, of_large, piece * (large.size() / 256));
    expect_seen(large, of_large, piece * (large.size() / 256) + 4095);
  }
}

TEST(Fingerprint, OfTheDemoIsThatOfItsCopy) {
  test::TempFolder folder;
  const fs::path demo = test::source_folder() / "launch/demo";
  for (const fs::directory_entry& entry : fs::directory_iterator(demo)) {
    if (entry.is_regular_file()) fs::copy_file(entry.path(), folder.path() / entry.path().filename());
  }
  EXPECT_EQ(checkpoint_fingerprint(Checkpoint::open(folder.path())), checkpoint_fingerprint(Checkpoint::open(demo)));
}

}  // namespace
}  // namespace ferry
