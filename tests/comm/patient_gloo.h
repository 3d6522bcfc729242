#pragma once

#include "comm/gloo/gloo_group.h"
#include "tests/support/eventually.h"

namespace ferry::suite {

/// Returns options for ranks that all join and leave in order, however long that takes.
inline GlooOptions patient_gloo() {
  return {.net_interface = {}, .connect_timeout = kTestLimit, .goodbye_timeout = kTestLimit};
}

}  // namespace ferry::suite
