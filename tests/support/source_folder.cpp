#include "tests/support/source_folder.h"

namespace ferry::test {

std::filesystem::path source_folder() { return FERRY_SOURCE_DIR; }

}  // namespace ferry::test
