#include "runtime/server/front/front_mark.h"

#include <algorithm>

#include "runtime/base/random_id.h"

namespace ferry {

FrontMark::FrontMark() : value_("1.1 ferry-front-" + random_id()) {}

/// Proxies on the way may have put their own names into the same header.
bool FrontMark::is_on(const HttpHeaders& headers) const {
  return std::ranges::any_of(
      headers, [&](const auto& header) { return header.first == kName && header.second.find(value_) != std::string::npos; });
}

bool FrontMark::is_on(const grpc::ServerContextBase& call) const {
  const auto [first, last] = call.client_metadata().equal_range(kName);
  return std::any_of(first, last, [&](const auto& each) {
    return std::string_view(each.second.data(), each.second.size()).find(value_) != std::string_view::npos;
  });
}

}  // namespace ferry
