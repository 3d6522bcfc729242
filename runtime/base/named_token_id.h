#pragma once

#include <string>

#include "runtime/base/types.h"

namespace ferry {

/// A token id with the name that the checkpoint's config.json has for it.
struct NamedTokenId {
  std::string name;
  TokenId id = -1;
};

}  // namespace ferry
