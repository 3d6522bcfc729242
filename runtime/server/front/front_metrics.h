#pragma once

#include "runtime/server/front/coordinator_pool.h"

namespace ferry {

class MetricsText;

/// All that a front knows of its coordinators and of how calls went, under names that begin with ferry:front_.
void write_front_metrics(const PoolReport& report, MetricsText& text);

}  // namespace ferry
