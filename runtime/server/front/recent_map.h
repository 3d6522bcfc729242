#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>

namespace ferry {

/// The values of the keys that were used last, at most so many. Keys are hashes. Used under its owner's lock.
template <class Value>
class RecentMap {
 public:
  explicit RecentMap(std::size_t max_size) : max_size_(max_size) {}

  /// Sets the key's value and makes it the youngest; the oldest one goes where there are too many.
  void set(uint64_t key, Value value) {
    if (const auto found = places_.find(key); found != places_.end()) {
      found->second->second = std::move(value);
      order_.splice(order_.begin(), order_, found->second);
      return;
    }
    if (order_.size() == max_size_) {
      places_.erase(order_.back().first);
      order_.pop_back();
    }
    order_.emplace_front(key, std::move(value));
    places_.emplace(key, order_.begin());
  }
  /// Null if there is none; it stays as old as it was.
  const Value* find(uint64_t key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &found->second->second;
  }
  std::size_t size() const { return order_.size(); }
  void clear() {
    places_.clear();
    order_.clear();
  }

 private:
  using Order = std::list<std::pair<uint64_t, Value>>;

  const std::size_t max_size_;  // at least 1
  Order order_;                 // the youngest first
  std::unordered_map<uint64_t, typename Order::iterator> places_;
};

}  // namespace ferry
