#pragma once

#include <cstdint>
#include <vector>

#include "profiler/counters/perf_group.h"

struct perf_event_mmap_page;

namespace ferry {

/// A counter's value by what its page says (perf_event_mmap_page in <linux/perf_event.h>): without a system call, by the thread
/// it counts. False where the page has no counter of the moment, or the kernel does not let programs read it.
bool read_perf_page(const perf_event_mmap_page& page, uint64_t& value, uint64_t& enabled_ns, uint64_t& running_ns);

/// The pages of a group of the calling thread, for readings of some 25 ns a counter.
class PerfPages {
 public:
  explicit PerfPages(const PerfGroup& group);
  ~PerfPages();
  PerfPages(const PerfPages&) = delete;
  PerfPages& operator=(const PerfPages&) = delete;

  /// As PerfGroup::read(). False if a counter cannot be read so at the moment.
  bool read(PerfReading& reading) const;

 private:
  struct Page {
    Counter counter;
    const perf_event_mmap_page* page;
  };
  std::vector<Page> pages_;  // empty if one of the group has none
};

}  // namespace ferry
