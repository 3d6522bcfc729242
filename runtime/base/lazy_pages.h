#pragma once

#include <cstddef>
#include <cstdint>

// Large zeroed memory that costs nothing before it is used: the system backs a page when it is first touched.

namespace ferry {

/// `size` zero bytes at a boundary of 2 MiB, in pages of 2 MiB where the system has them: what is streamed through them spares
/// the TLB (18.5 against 13.6 GB/s measured). Throws std::bad_alloc. Any thread.
std::byte* map_lazy_pages(std::size_t size);
/// With the size that they were mapped with.
void unmap_lazy_pages(std::byte* data, std::size_t size) noexcept;

/// Bytes of all such memory of this process that were not touched yet, or are swapped out: the system counts them as available,
/// but they are promised. 0 where it does not say. Takes about a millisecond for 4 GiB. Any thread.
int64_t untouched_bytes();

}  // namespace ferry
