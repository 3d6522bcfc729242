#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace ferry {

/// Bytes of a region, from `begin` to before `end`.
struct Extent {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

/// Which bytes of a region are in use, and which are not. What is wanted goes where it fits first, counted from the region's
/// begin, so that what is given back is used again before what never was: of pieces of one size no more of the region is ever
/// touched than the most that was in use at the same time; of others that times the logarithm of the ratio of their sizes
/// (J. M. Robson, "Worst case fragmentation of first fit and best fit storage allocation strategies", 1977).
///
/// Time is that of passing the holes. One thread at a time.
class FreeExtents {
 public:
  /// In use; the way back is made beforehand, since giving back must not fail.
  class Taken {
   public:
    Extent extent() const { return {hole_.key(), hole_.mapped()}; }

   private:
    friend class FreeExtents;
    std::map<std::size_t, std::size_t>::node_type hole_;  // that it will leave
  };

  /// Of a region in which nothing is in use.
  explicit FreeExtents(std::size_t num_bytes);

  /// `size` bytes, 1 or more; nothing if no hole has as many. Throws std::bad_alloc, and then nothing is taken.
  std::optional<Taken> take(std::size_t size);
  /// The hole that it is part of now.
  Extent give_back(Taken taken) noexcept;

  std::size_t num_bytes() const { return num_bytes_; }
  std::size_t used_bytes() const { return used_bytes_; }
  /// Begin to end of what is not in use; none is empty or next to another one.
  const std::map<std::size_t, std::size_t>& holes() const { return holes_; }

 private:
  std::size_t num_bytes_;
  std::size_t used_bytes_ = 0;
  std::map<std::size_t, std::size_t> holes_;
};

}  // namespace ferry
