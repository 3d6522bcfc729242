#include "runtime/server/siblings.h"

#include <memory>

namespace ferry {

void make_siblings(std::span<Request> requests) {
  if (requests.size() < 2) return;
  const auto siblings = std::make_shared<Siblings>(Siblings{.num_all = std::ssize(requests)});
  for (Request& request : requests) request.siblings = siblings;
}

}  // namespace ferry
