#include "runtime/checkpoint/source_format.h"

namespace ferry {
namespace {

std::string size_name(int64_t size, const char* all) { return size == 0 ? all : std::to_string(size); }

}  // namespace

std::string SourceFormat::describe() const {
  switch (kind) {
    case Kind::kPlain: return "plain";
    case Kind::kFp8Block:
      return "e4m3, a scale for " + std::to_string(block_rows) + " x " + size_name(block_cols, "all") + " weights";
    case Kind::kIntegers:
      return "integers as " + std::string(layout->name) + " has them, a scale for " + size_name(group_size, "all") + " columns";
  }
  return "";
}

}  // namespace ferry
