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
  std::string dtypes;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (make_onednn_matmul(dtype) != nullptr) dtypes += (dtypes.empty() ? "" : ", ") + std::string(dtype_name(dtype));
  }
  return std::string("ferry ") + build_info::kVersion + "\nkernels: " + kernels + "\nmatmul: " + onednn_version() + " (" +
         (dtypes.empty() ? "nothing on this processor" : dtypes) + ")\ntransports: " + mpi_version() + ", " + gloo_version() +
         "\n";
}

}  // namespace ferry
