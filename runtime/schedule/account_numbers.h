#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ferry {

/// Small numbers for the accounts (Request::account) of open requests. A number is free again when none is open any more, so
/// that there are never more than requests.
class AccountNumbers {
 public:
  /// Of one more open request.
  int32_t enter(const std::string& account);
  /// One has ended.
  void leave(const std::string& account);
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

 private:
  struct Entry {
    int32_t number = 0;
    int64_t num_open = 0;
  };

  std::map<std::string, Entry> entries_;
  std::vector<int32_t> free_;  // numbers
};

}  // namespace ferry
