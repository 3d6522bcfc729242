#include "kernels/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ferry {
namespace {

/// Whether the system lets this process use the AMX tiles' state.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl: ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Not every compiler's __builtin_cpu_supports knows F16C and AMX by name.
bool processor_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool processor_has_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kBf16) != 0 && (edx & kTile) != 0 && (edx & kInt8) != 0;
}

}  // namespace

bool has_avx2() {
  static const bool has_f16c = processor_has_f16c();  // cpuid leaves a virtual machine, which takes microseconds
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c;
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
bool has_avx512_vbmi() { return has_avx512() && __builtin_cpu_supports("avx512vbmi"); }
bool has_amx() {
  static const bool usable = has_avx512_bf16() && has_avx512_vnni() && processor_has_amx() && may_use_tiles();
  return usable;
}

}  // namespace ferry
