#include "profiler/counters/perf_pages.h"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ferry {
namespace {

/// The hardware's counter `index`, from 0.
uint64_t read_hardware([[maybe_unused]] uint32_t index) {
#if defined(__x86_64__)
  return __rdpmc(static_cast<int>(index));
#else
  return 0;
#endif
}

constexpr bool kHasInstruction =
#if defined(__x86_64__)
    true;
#else
    false;
#endif

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

bool read_perf_page(const perf_event_mmap_page& page, uint64_t& value, uint64_t& enabled_ns, uint64_t& running_ns) {
  constexpr int kTries = 100;  // the kernel writes the page at switches of the thread that reads it
  const volatile perf_event_mmap_page& now = page;
  for (int i = 0; i < kTries; ++i) {
    const uint32_t sequence = now.lock;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const uint32_t index = now.index;
    if (!kHasInstruction || index == 0 || now.cap_user_rdpmc == 0 || now.pmc_width == 0 || now.pmc_width > 64) return false;
    const auto unused = static_cast<uint32_t>(64 - now.pmc_width);  // the hardware's value is a signed one of that width
    const auto counted = static_cast<int64_t>(read_hardware(index - 1) << unused) >> unused;
    value = static_cast<uint64_t>(now.offset + counted);
    enabled_ns = now.time_enabled;
    running_ns = now.time_running;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (now.lock == sequence) return true;
  }
  return false;
}

PerfPages::PerfPages(const PerfGroup& group) {
  for (const PerfGroup::Member& member : group.members_) {
    void* page = mmap(nullptr, page_bytes(), PROT_READ, MAP_SHARED, member.file.get(), 0);
    if (page == MAP_FAILED) break;
    pages_.push_back({member.counter, static_cast<const perf_event_mmap_page*>(page)});
  }
  if (pages_.size() == group.members_.size()) return;
  for (const Page& page : pages_) munmap(const_cast<perf_event_mmap_page*>(page.page), page_bytes());
  pages_.clear();
}

PerfPages::~PerfPages() {
  for (const Page& page : pages_) munmap(const_cast<perf_event_mmap_page*>(page.page), page_bytes());
}

bool PerfPages::read(PerfReading& reading) const {
  reading.values.fill(kNotCounted);
  for (const Page& page : pages_) {
    uint64_t& value = reading.values[static_cast<std::size_t>(page.counter)];
    if (!read_perf_page(*page.page, value, reading.enabled_ns, reading.running_ns)) return false;
  }
  return !pages_.empty();
}

}  // namespace ferry
