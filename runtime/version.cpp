#include "runtime/version.h"

#include "comm/gloo/gloo_group.h"
#include "comm/mpi/mpi_group.h"
#include "kernels/matmul.h"
#include "kernels/op_table.h"
#include "runtime/build_info.h"

namespace ferry {

const char* version_number() { return build_info::kVersion; }

std::string version_text() {
  std::string kernels;
  for (const OpTable* table : available_op_tables()) kernels += (kernels.empty() ? "" : ", ") + std::string(table->name);
  std::string matmuls;
  for (const std::string& name : cpu_matmul_names()) matmuls += name + ", ";
  return std::string("ferry ") + build_info::kVersion + "\nkernels: " + kernels + "\nmatmul: " + matmuls + onednn_version() +
         ", ref\ntransports: " + mpi_version() + ", " + gloo_version() + "\n";
}

}  // namespace ferry
