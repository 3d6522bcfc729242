#include "tests/support/poisoned_memory.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/scratch.h"

namespace ferry::test {
namespace {

std::vector<const OpTable*> best_tables() {
  std::vector<const OpTable*> tables = available_unit_tables();
  for (const OpTable* table : available_op_tables()) tables.push_back(table);
  return tables;
}

}  // namespace

Storage PoisonedMemory::allocate(std::size_t size) {
  Storage storage = host_memory().allocate(size);
  if (size > 0) std::fill_n(storage.address().host(), size, std::byte{0xFF});
  return storage;
}

PoisonedBackend::PoisonedBackend(DType dtype)
    : backend_("poisoned", best_tables(), select_matmul("auto", dtype, select_op_table("auto").name), memory_) {}

void poison_scratch(int64_t num_floats) {
  for (const Scratch which : {Scratch::kMain, Scratch::kRows})
    std::fill_n(thread_scratch(num_floats, which), num_floats, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace ferry::test
