#pragma once

// The compiler's own: each operation rounds to nearest even.
using half = _Float16;
