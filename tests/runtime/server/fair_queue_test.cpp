#include "runtime/server/fair_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace ferry {
namespace {

/// A queue whose tasks start and finish when the test says so. A task is known by its name.
class Tasks {
 public:
  explicit Tasks(std::size_t max_waiting = 100) : queue_(max_waiting) {}

  bool push(const std::string& name, const std::vector<TaskShare>& shares) {
    return queue_.push(shares, [this, name] { last_started_ = name; });
  }
  /// The name of the task that starts, empty if none may.
  std::string start() {
    std::optional<FairQueue::Started> started = queue_.start_next();
    if (!started) return "";
    started->task();
    running_.emplace(last_started_, std::move(*started));
    return last_started_;
  }
  void finish(const std::string& name) {
    queue_.finish(running_.at(name));
    running_.erase(name);
  }
  /// Starts and finishes one task after the other until none may start.
  std::vector<std::string> run_all() {
    std::vector<std::string> order;
    for (std::string name = start(); !name.empty(); name = start()) {
      order.push_back(name);
      finish(name);
    }
    return order;
  }
  std::size_t num_waiting() const { return queue_.num_waiting(); }

 private:
  FairQueue queue_;
  std::string last_started_;
  std::map<std::string, FairQueue::Started> running_;
};

using Names = std::vector<std::string>;

TEST(FairQueue, TasksOfOneShareStartInTheirOrder) {
  Tasks tasks;
  for (const char* name : {"1", "2", "3"}) ASSERT_TRUE(tasks.push(name, {{"a", 9}}));
  EXPECT_EQ(tasks.run_all(), (Names{"1", "2", "3"}));
  EXPECT_EQ(tasks.num_waiting(), 0U);
}

TEST(FairQueue, TheShareWithTheFewestRunningTasksIsNext) {
  Tasks tasks;
  for (const char* name : {"a1", "a2", "a3"}) ASSERT_TRUE(tasks.push(name, {{"a", 9}}));
  EXPECT_EQ(tasks.start(), "a1");
  EXPECT_EQ(tasks.start(), "a2");
  for (const char* name : {"b1", "b2", "b3"}) ASSERT_TRUE(tasks.push(name, {{"b", 9}}));
  EXPECT_EQ(tasks.start(), "b1");
  EXPECT_EQ(tasks.start(), "b2");
  tasks.finish("a1");
  EXPECT_EQ(tasks.start(), "a3") << "a has one running task, b has two";
}

TEST(FairQueue, OneThreadServesSharesInTurn) {
  Tasks tasks;
  for (const char* name : {"a1", "a2", "a3", "a4"}) ASSERT_TRUE(tasks.push(name, {{"a", 9}}));
  EXPECT_EQ(tasks.start(), "a1");
  for (const char* name : {"b1", "b2", "c1"}) ASSERT_TRUE(tasks.push(name, {{std::string(1, name[0]), 9}}));
  tasks.finish("a1");
  EXPECT_EQ(tasks.run_all(), (Names{"b1", "c1", "a2", "b2", "a3", "a4"}));
}

TEST(FairQueue, AShareRunsNoMoreThanItsLimit) {
  Tasks tasks;
  for (const char* name : {"a1", "a2", "a3"}) ASSERT_TRUE(tasks.push(name, {{"a", 2}}));
  EXPECT_EQ(tasks.start(), "a1");
  EXPECT_EQ(tasks.start(), "a2");
  EXPECT_EQ(tasks.start(), "");
  ASSERT_TRUE(tasks.push("b1", {{"b", 2}}));
  EXPECT_EQ(tasks.start(), "b1") << "others need not wait";
  tasks.finish("a2");
  EXPECT_EQ(tasks.start(), "a3");
}

TEST(FairQueue, EveryShareOfATaskMustHaveRoom) {
  Tasks tasks;
  ASSERT_TRUE(tasks.push("a at slow", {{"a", 9}, {"slow", 1}}));
  ASSERT_TRUE(tasks.push("a at slow again", {{"a", 9}, {"slow", 1}}));
  ASSERT_TRUE(tasks.push("b at slow", {{"b", 9}, {"slow", 1}}));
  ASSERT_TRUE(tasks.push("a at quick", {{"a", 9}, {"quick", 1}}));
  EXPECT_EQ(tasks.start(), "a at slow");
  EXPECT_EQ(tasks.start(), "a at quick");
  EXPECT_EQ(tasks.start(), "");
  tasks.finish("a at slow");
  EXPECT_EQ(tasks.start(), "b at slow") << "b has no running task, so it comes before the older one of a";
}

TEST(FairQueue, AmongTasksOfOneShareTheNextShareDecides) {
  Tasks tasks;
  ASSERT_TRUE(tasks.push("1", {{"a", 9}, {"x", 9}}));
  ASSERT_TRUE(tasks.push("2", {{"a", 9}, {"x", 9}}));
  ASSERT_TRUE(tasks.push("3", {{"a", 9}, {"y", 9}}));
  EXPECT_EQ(tasks.start(), "1");
  EXPECT_EQ(tasks.start(), "3");
  EXPECT_EQ(tasks.start(), "2");
}

TEST(FairQueue, OneShareFillsHalfOfTheRoom) {
  Tasks tasks(6);
  int num_taken = 0;
  for (int i = 0; i < 20; ++i) num_taken += tasks.push("a", {{"a", 1}}) ? 1 : 0;
  EXPECT_EQ(num_taken, 6);
  for (int i = 0; i < 20; ++i) num_taken += tasks.push("b", {{"b", 1}}) ? 1 : 0;
  EXPECT_EQ(num_taken, 6 + 3) << "a third share must find room, too";
  EXPECT_TRUE(tasks.push("c", {{"c", 1}}));
  EXPECT_FALSE(tasks.push("b", {{"b", 1}, {"new", 1}}));
  EXPECT_FALSE(tasks.push("b", {{"new", 1}, {"b", 1}})) << "each share must have room";
  EXPECT_EQ(tasks.num_waiting(), 10U);
}

TEST(FairQueue, AShareThatComesBackIsNew) {
  Tasks tasks;
  ASSERT_TRUE(tasks.push("a1", {{"a", 1}}));
  EXPECT_EQ(tasks.run_all(), (Names{"a1"}));
  ASSERT_TRUE(tasks.push("b1", {{"b", 1}}));
  ASSERT_TRUE(tasks.push("a2", {{"a", 1}}));
  EXPECT_EQ(tasks.run_all(), (Names{"b1", "a2"}));
}

}  // namespace
}  // namespace ferry
