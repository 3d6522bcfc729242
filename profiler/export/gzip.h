#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// `bytes` as the contents of a .gz file.
std::string gzip(std::string_view bytes);

}  // namespace ferry
