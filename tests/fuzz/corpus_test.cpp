#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "runtime/base/error.h"
#include "tests/fuzz/targets.h"
#include "tests/support/source_folder.h"

namespace ferry::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path corpus_folder() { return test::source_folder() / "tests/fuzz/corpus"; }

std::vector<uint8_t> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Seeds that the target must accept have "good" in their names, the others it may refuse.
TEST(FuzzCorpus, EveryInputIsReadOrRefused) {
  for (const Target& target : all_targets()) {
    int num_good = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(corpus_folder() / target.name)) {
      SCOPED_TRACE(entry.path().string());
      const std::vector<uint8_t> input = bytes_of(entry.path());
      const bool good = entry.path().filename().string().starts_with("good");
      num_good += good ? 1 : 0;
      try {
        target.run(input);
      } catch (const Error& error) {
        EXPECT_FALSE(good) << error.what();
      }
    }
    EXPECT_GE(num_good, 1) << "no good seed for " << target.name;
  }
}

TEST(FuzzCorpus, EveryFolderHasATarget) {
  std::set<std::string> names;
  for (const Target& target : all_targets()) names.insert(target.name);
  for (const fs::directory_entry& entry : fs::directory_iterator(corpus_folder()))
    EXPECT_TRUE(names.contains(entry.path().filename().string())) << entry.path();
}

}  // namespace
}  // namespace ferry::fuzz
