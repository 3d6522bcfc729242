#include "tests/comm/thread_cluster.h"

#include <thread>
#include <utility>
#include <vector>

#include "comm/local_group.h"

namespace ferry {

void run_on_threads(int size, const GroupCluster::Body& body) {
  const auto groups = make_local_groups(size);
  std::vector<std::thread> ranks;
  for (const auto& group : groups) {
    ranks.emplace_back([&body, &group] {
      try {
        body(*group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << group->rank().value << ": " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

GroupCluster thread_cluster(const std::string& name, int size, WrapGroup wrap) {
  GroupCluster cluster;
  cluster.name = name + std::to_string(size);
  cluster.run = [size, wrap = std::move(wrap)](const GroupCluster::Body& body) {
    run_on_threads(size, [&](Group& local) {
      if (!wrap) return body(local);
      const std::unique_ptr<Group> group = wrap(local);
      try {
        body(*group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << group->rank().value << ": " << error.what();
      }
      local.barrier(test::in_good_time());  // nobody leaves while others still exchange
    });
  };
  return cluster;
}

}  // namespace ferry
