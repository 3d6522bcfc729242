#include "kernels/cpu/int4_search.h"
#include "kernels/cpu_features.h"

namespace ferry {

Int4Search select_int4_search() {
  if (has_avx512()) return cpu_avx512::search_int4;
  if (has_avx2()) return cpu_avx2::search_int4;
  return cpu_generic::search_int4;
}

}  // namespace ferry
