#include "kernels/backend.h"

#include "kernels/cpu_features.h"
#include "runtime/base/error.h"

namespace ferry {

std::vector<const OpTable*> available_op_tables() {
  std::vector<const OpTable*> tables;
  if (has_avx512()) tables.push_back(&cpu_avx512::kOpTable);
  if (has_avx2()) tables.push_back(&cpu_avx2::kOpTable);
  tables.push_back(&ref::kOpTable);
  return tables;
}

std::vector<const OpTable*> available_unit_tables() {
  std::vector<const OpTable*> tables;
  if (has_amx()) tables.push_back(&cpu_amx::kOpTable);
  if (has_avx512_bf16()) tables.push_back(&cpu_avx512_bf16::kOpTable);
  return tables;
}

const OpTable& select_op_table(std::string_view name) {
  const std::vector<const OpTable*> tables = available_op_tables();
  if (name == "auto") return *tables.front();
  std::string allowed = "auto";
  for (const OpTable* table : tables) {
    if (name == table->name) return *table;
    allowed += std::string(", ") + table->name;
  }
  throw_invalid("--kernels: '" + std::string(name) + "' cannot run on this processor; allowed: " + allowed);
}

Backend select_backend(std::string_view kernels, const std::string& matmul, DType dtype) {
  const OpTable& chosen = select_op_table(kernels);
  std::vector<const OpTable*> tables;
  if (&chosen == &cpu_avx512::kOpTable) tables = available_unit_tables();
  tables.push_back(&chosen);
  if (&chosen != &ref::kOpTable) tables.push_back(&ref::kOpTable);
  return {chosen.name, std::move(tables), select_matmul(matmul, dtype, chosen.name)};
}

}  // namespace ferry
