#pragma once

#include <string>
#include <vector>

#include "launch/top/rates.h"
#include "launch/top/styled_line.h"

namespace ferry {

/// What `ferry top` shows of a history that is not empty: at most screen.rows lines of at most screen.columns columns. Where
/// rows are few, tables are cut first and then what matters less is left out.
std::vector<std::string> draw_frame(const LiveHistory& history, const Screen& screen);

}  // namespace ferry
