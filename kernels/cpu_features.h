#pragma once

// What this processor and its system let a process use. Thread-safe.

namespace ferry {

bool has_avx2();         // with FMA and F16C
bool has_avx512();       // F, BW, DQ, VL
bool has_avx512_vnni();  // and the above
bool has_avx512_bf16();  // likewise
bool has_avx512_vbmi();  // likewise
/// AMX tiles with bf16 and int8 products. The first call asks the system for the tiles' state.
bool has_amx();

}  // namespace ferry
