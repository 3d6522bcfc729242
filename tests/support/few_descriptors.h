#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace ferry::test {

/// While it lives, this process can open no further file descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int highest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(highest) + 1;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int fd = highest; fd >= 0; fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) fillers_.push_back(fd);
  }
  ~NoDescriptors() {
    for (const int fd : fillers_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<int> fillers_;
};

}  // namespace ferry::test
