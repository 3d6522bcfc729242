#pragma once

#include <set>
#include <string>
#include <string_view>

namespace ferry {

/// The cores that the calling thread may run on, as Linux lists them: "0-3,8"; empty if the system does not say.
std::string own_cores();

/// What such a list names; nothing where it is no such list, names more than kMostCores, or one beyond that.
inline constexpr int kMostCores = 1 << 14;
std::set<int> parse_cores(std::string_view list);

}  // namespace ferry
