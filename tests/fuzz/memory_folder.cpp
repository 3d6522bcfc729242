#include "tests/fuzz/memory_folder.h"

#include <stdlib.h>

#include <fstream>

#include "runtime/base/check.h"

namespace ferry::fuzz {

MemoryFolder::MemoryFolder() {
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path parent = std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
  std::string name = (parent / "ferry_fuzz_XXXXXX").string();
  FERRY_CHECK(::mkdtemp(name.data()) != nullptr) << "no folder can be made in " << parent.string();
  path_ = name;
}

MemoryFolder::~MemoryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void MemoryFolder::write(const std::string& name, std::string_view content) const {
  std::ofstream file(path_ / name, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  FERRY_CHECK(file.good()) << "cannot write " << (path_ / name).string();
}

void MemoryFolder::clear() const {
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(path_))
    std::filesystem::remove_all(entry.path());
}

}  // namespace ferry::fuzz
