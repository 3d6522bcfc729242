#include "runtime/server/vllm/tokenizer_archive.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry::vllm {
namespace {

class TokenizerArchiveTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& contents) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << contents;
  }

  test::TempFolder folder_;
};

TEST_F(TokenizerArchiveTest, HoldsTheFilesThatMakeATokenizerInAFixedOrder) {
  write("tokenizer.json", "{}");
  write("chat.jinja", "{{ x }}");
  write("config.json", "{\"a\":1}");
  write("model.safetensors", "weights");
  const TokenizerArchive archive = make_tokenizer_archive(folder_.path());
  EXPECT_TRUE(archive.bytes.starts_with("PK\x03\x04"));
  const std::size_t jinja = archive.bytes.find("chat.jinja{{ x }}"), config = archive.bytes.find("config.json{\"a\":1}");
  const std::size_t tokenizer = archive.bytes.find("tokenizer.json{}");
  ASSERT_NE(tokenizer, std::string::npos);
  EXPECT_LT(jinja, config);
  EXPECT_LT(config, tokenizer);
  EXPECT_EQ(archive.bytes.find("weights"), std::string::npos);
  EXPECT_EQ(archive.sha256.size(), 64U);
  EXPECT_EQ(make_tokenizer_archive(folder_.path()).sha256, archive.sha256);
  write("tokenizer.json", "[]");
  EXPECT_NE(make_tokenizer_archive(folder_.path()).sha256, archive.sha256);
}

TEST_F(TokenizerArchiveTest, AFolderWithoutATokenizerIsRefused) {
  test::expect_error([&] { make_tokenizer_archive(folder_.path()); }, ErrorCode::kFailedPrecondition, {"no files"});
}

TEST_F(TokenizerArchiveTest, MoreFilesThanReceiversTakeAreRefused) {
  for (int i = 0; i < 51; ++i) write(std::to_string(i) + ".jinja", "");
  test::expect_error([&] { make_tokenizer_archive(folder_.path()); }, ErrorCode::kFailedPrecondition, {"51", "50"});
}

TEST_F(TokenizerArchiveTest, WhoeverHasOneAtATimeSharesIt) {
  write("tokenizer.json", "{}");
  TokenizerArchives archives(folder_.path());
  const auto first = archives.get();
  EXPECT_EQ(archives.get(), first);
  TokenizerArchives nowhere("");
  test::expect_error([&] { nowhere.get(); }, ErrorCode::kFailedPrecondition, {"folder"});
}

}  // namespace
}  // namespace ferry::vllm
