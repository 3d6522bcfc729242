#pragma once

#include <string>

#include "profiler/archive/archive_query.h"
#include "profiler/report/views/table.h"

// What `ferry trace archive` says of the steps that it found.

namespace ferry {

/// A line: the time that was asked for, how many steps were kept, counted by why, and the slowest of them.
std::string archive_headline(const ArchiveQuery& query, const ArchiveAnswer& answer);

/// "kept": the chosen steps, a row each; its note says of how many.
Table make_kept_view(const ArchiveAnswer& answer);

}  // namespace ferry
