#pragma once

#include "comm/gloo/gloo_group.h"
#include "tests/support/eventually.h"

namespace ferry::suite {

/// Of ranks that all come and go in order, however long that takes.
inline GlooOptions patient_gloo() {
  return {.net_interface = {}, .connect_timeout = kTestLimit, .goodbye_timeout = kTestLimit};
}

}  // namespace ferry::suite
