#include "runtime/server/http/observer.h"

#include <algorithm>
#include <iterator>

namespace ferry {

bool only_watches(std::string_view route) {
  constexpr std::string_view kWatching[] = {"/metrics", "/health", "/ping", "/load", "/version", "/status.json", "/"};
  return std::find(std::begin(kWatching), std::end(kWatching), route) != std::end(kWatching);
}

}  // namespace ferry
