#include "runtime/server/profile_control.h"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <iterator>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/server/http/http_server.h"
#include "runtime/server/profile_routes.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_capture.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

using test::RawClient;
using test::status_of;

/// Two steps of `num_ranks` ranks, of which all but the first are lost.
Capture make_capture(int num_ranks) {
  test::SmallCapture made(num_ranks, 1000);
  made.step(0, Phase::kDecode, 100, 200, 1, 1).step(1, Phase::kDecode, 300, 400, 1, 1);
  for (int r = 1; r < num_ranks; ++r) made.capture.ranks[static_cast<std::size_t>(r)].threads.clear();
  return std::move(made.capture);
}

/// Captures as an engine would give them, complete when they are stopped.
class MadeCaptures : public CaptureSource {
 public:
  void start(const TracePlan& plan) override {
    if (at_start) at_start();
    const std::scoped_lock lock(mutex_);
    if (is_running_) throw Error(ErrorCode::kFailedPrecondition, "a capture is running");
    is_running_ = true;
    last_plan_ = plan;
  }
  void stop() override {
    {
      const std::scoped_lock lock(mutex_);
      ++num_stops_;
      if (!std::exchange(is_running_, false)) throw Error(ErrorCode::kFailedPrecondition, "no capture is running");
    }
    if (completes) complete();
  }
  void save_snapshot() override {
    if (at_start) at_start();
    complete();
  }
  void set_on_capture(std::function<void(Capture)> on_capture, std::function<void(const std::string&)> on_give_up) override {
    const std::scoped_lock lock(mutex_);
    on_capture_ = std::move(on_capture);
    on_give_up_ = std::move(on_give_up);
  }

  void complete(int num_ranks = 1) {
    const std::scoped_lock lock(mutex_);
    if (on_capture_) on_capture_(make_capture(num_ranks));
  }
  void give_up(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    on_give_up_(why);
  }
  TracePlan last_plan() {
    const std::scoped_lock lock(mutex_);
    return last_plan_;
  }
  int num_stops() {
    const std::scoped_lock lock(mutex_);
    return num_stops_;
  }

  // Set while nobody asks.
  std::function<void()> at_start;  // of a capture or a snapshot
  bool completes = true;           // when stopped

 private:
  std::mutex mutex_;
  bool is_running_ = false;
  int num_stops_ = 0;
  TracePlan last_plan_;
  std::function<void(Capture)> on_capture_;
  std::function<void(const std::string&)> on_give_up_;
};

class ProfileControlTest : public ::testing::Test {
 protected:
  ProfileControlTest() {
    HttpRouter router;
    add_profile_routes(router, control_);
    server_.emplace(HttpServerOptions{.address = "127.0.0.1:0", .limits = test::patient_limits()}, access_, std::move(router));
  }

  std::string post(const std::string& path, const std::string& body = "", const std::string& headers = "") {
    return RawClient(server_->address()).ask("POST " + path, body, headers);
  }

  const test::TempFolder temp_;
  const std::filesystem::path root_ = temp_.path() / "traces";
  MadeCaptures captures_;
  ProfileControl control_{captures_, root_, false};
  const Access access_;
  std::optional<HttpServer> server_;
};

TEST_F(ProfileControlTest, CapturesAreWrittenBelowTheRoot) {
  const std::string started = post("/start_profile", R"({"output_dir": "one", "num_steps": 3, "start_step": 2, "level": 2})");
  EXPECT_EQ(status_of(started), 200) << started;
  EXPECT_TRUE(started.ends_with("{\"output_dir\":\"" + (root_ / "one").string() + "\"}\n")) << started;
  EXPECT_EQ(captures_.last_plan().num_steps, 3);
  EXPECT_EQ(captures_.last_plan().delay_steps, 2);
  EXPECT_EQ(status_of(post("/start_profile")), 409);
  EXPECT_EQ(status_of(post("/stop_profile", R"({"wait": true})")), 200);
  EXPECT_TRUE(std::filesystem::exists(root_ / "one" / "capture.json"));
  EXPECT_EQ(status_of(post("/stop_profile")), 409);
  EXPECT_EQ(status_of(post("/start_profile")), 200);  // into a folder named by the time
  EXPECT_EQ(control_.stop(true).parent_path(), root_);
  EXPECT_TRUE(control_.save("saved", true) == root_ / "saved" && std::filesystem::exists(root_ / "saved" / "report.txt"));
}

TEST_F(ProfileControlTest, NoFolderElsewhereIsMade) {
  const std::filesystem::path outside = temp_.path() / "outside";
  for (const std::string& asked : {outside.string(), std::string("../outside"), std::string("/proc/none")}) {
    const std::string answer = post("/start_profile", "{\"output_dir\": \"" + asked + "\"}");
    EXPECT_EQ(status_of(answer), 400) << answer;
    EXPECT_NE(answer.find("--trace-dir"), std::string::npos) << answer;
    EXPECT_THROW(control_.save(asked, false), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(outside));
  EXPECT_EQ(control_.status().state, ProfileControl::State::kIdle);
}

TEST_F(ProfileControlTest, HostileBodiesAreRefused) {
  const std::string depth(100'000, '['), close(100'000, ']');
  std::string many = "{\"output_dir\": [1";
  for (int i = 0; i < 10'000; ++i) many += ",1";
  for (const std::string& body :
       {"{\"output_dir\":" + depth + close + "}", depth, "{\"output_dir\":" + std::string(1000, '{'), many + "]}",
        std::string("[]"), std::string("nul"), std::string("{\"level\": 1, \"level\": 2}"),
        std::string("{\"level\": 99999999999999999999}"), std::string("{\"level\": 18446744073709551615}"),
        std::string("{\"level\": 1.5}"), std::string("{\"wait\": true}"), std::string("{\"output_dir\": 5}"),
        std::string("{\"output_dir\": \"a\\u0000b\"}"), "{\"" + std::string(50'000, 'k') + "\": 1}",
        std::string("{\"output_dir\": \"\xff\"}"), std::string("{\"max_bytes\": 1}"), std::string("{\"num_steps\": -1}")}) {
    const std::string answer = post("/start_profile", body);
    EXPECT_EQ(status_of(answer), 400) << body.substr(0, 100) << " got " << answer;
    EXPECT_LT(answer.size(), 2000U);
  }
  EXPECT_EQ(control_.status().state, ProfileControl::State::kIdle);
  EXPECT_EQ(status_of(post("/start_profile")), 200);
}

TEST_F(ProfileControlTest, PagesOfOtherSitesStartNothing) {
  RawClient page(server_->address());
  page.send("POST /start_profile HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(status_of(page.read_answer()), 415);
  EXPECT_EQ(status_of(post("/start_profile", "", "Origin: http://evil.example\r\n")), 403);
  RawClient rebound(server_->address());
  rebound.send("POST /start_profile HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(status_of(rebound.read_answer()), 403);
  EXPECT_FALSE(std::filesystem::exists(root_));
}

TEST_F(ProfileControlTest, AnyThreadMayAsk) {
  std::atomic<int> num_stopped = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) {
        if (t % 3 == 0) status_of(post("/start_profile"));
        if (t % 3 == 1) num_stopped += status_of(post("/stop_profile", i % 2 == 0 ? "{\"wait\": true}" : "")) == 200;
        if (t % 3 == 2) (void)control_.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  server_.reset();
  if (control_.status().state == ProfileControl::State::kRecording) num_stopped += !control_.stop(true).empty();
  EXPECT_GT(num_stopped, 0);
}

/// Captures below a folder, without a server.
class CaptureJobsTest : public ::testing::Test {
 protected:
  ~CaptureJobsTest() override {
    if (control_) control_->leave();  // whoever still waits is a failure's
  }

  /// What stop(true) says on a thread of its own, once the source has been asked to stop.
  std::future<std::filesystem::path> stop_elsewhere() {
    const int num_before = captures_.num_stops();
    auto stopped = std::async(std::launch::async, [this] { return control_->stop(true); });
    eventually([&] { return captures_.num_stops() != num_before; }, "the stop to reach the source");
    return stopped;
  }
  std::size_t num_lost_folders() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(root_))
      count += entry.path().filename().string().starts_with("lost-");
    return count;
  }

  const test::TempFolder temp_;
  const std::filesystem::path root_ = temp_.path() / "traces";
  MadeCaptures captures_;
  std::optional<ProfileControl> control_{std::in_place, captures_, root_, true};
};

TEST_F(CaptureJobsTest, ALossLeavesAloneWhatIsBeingWritten) {
  control_->start({}, "one");
  control_->stop(false);
  captures_.complete(2);  // nobody asked: a rank was lost
  control_.reset();       // all is written
  EXPECT_TRUE(std::filesystem::exists(root_ / "one" / "report.txt"));
  EXPECT_EQ(read_capture(root_ / "one").ranks.size(), 1U);
  EXPECT_EQ(num_lost_folders(), 1U);
}

TEST_F(CaptureJobsTest, AStartThatFailsForAnyReasonIsOver) {
  captures_.at_start = [] { throw std::bad_alloc(); };
  EXPECT_THROW(control_->start({}, "one"), std::bad_alloc);
  EXPECT_EQ(control_->status().state, ProfileControl::State::kIdle);
  EXPECT_NE(control_->status().error, "");
  EXPECT_THROW(control_->save("two", true), std::bad_alloc);
  EXPECT_EQ(control_->status().state, ProfileControl::State::kIdle);
  captures_.at_start = {};
  EXPECT_EQ(control_->save("three", true), root_ / "three");
  EXPECT_EQ(control_->status().error, "");
}

TEST_F(CaptureJobsTest, ACaptureThatIsGivenUpIsOver) {
  control_->start({}, "one");
  captures_.give_up("no memory");
  EXPECT_EQ(control_->status().state, ProfileControl::State::kIdle);
  EXPECT_EQ(control_->status().error, "no memory");
  captures_.give_up("nothing runs");
  EXPECT_EQ(control_->status().error, "no memory");
  EXPECT_THROW(control_->stop(true), Error);
}

TEST_F(CaptureJobsTest, WhoWaitsHearsOfTheirOwnCapture) {
  for (const std::string name : {"one", "two", "three"}) {
    captures_.completes = false;
    control_->start({}, name);
    auto stopped = stop_elsewhere();
    captures_.give_up("no memory");
    control_->start({}, name + "-again");  // perhaps before the other thread wakes up
    ASSERT_EQ(stopped.wait_for(kTestLimit), std::future_status::ready);
    test::expect_error([&] { stopped.get(); }, ErrorCode::kFailedPrecondition, {"no memory"});
    captures_.completes = true;
    EXPECT_EQ(control_->stop(true), root_ / (name + "-again"));
  }
}

/// Whether a thread of this process waits for something.
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text.at(name_end + 2) == 'S';
}

TEST_F(CaptureJobsTest, AStopDuringAStartStopsWhatStarts) {
  std::future<std::filesystem::path> stopped;
  std::atomic<pid_t> stopper = 0;
  captures_.at_start = [&] {
    stopped = std::async(std::launch::async, [&] {
      stopper = gettid();
      return control_->stop(true);
    });
    eventually([&] { return stopper != 0 && is_asleep(stopper); }, "the stop to wait for the start");
  };
  control_->start({}, "one");
  ASSERT_EQ(stopped.wait_for(kTestLimit), std::future_status::ready);
  EXPECT_EQ(stopped.get(), root_ / "one");
  EXPECT_TRUE(std::filesystem::exists(root_ / "one" / "report.txt"));
}

TEST_F(CaptureJobsTest, NobodyWaitsWhenTheServerLeaves) {
  captures_.completes = false;
  control_->start({}, "one");
  auto stopped = stop_elsewhere();
  control_->leave();
  ASSERT_EQ(stopped.wait_for(kTestLimit), std::future_status::ready);
  test::expect_error([&] { stopped.get(); }, ErrorCode::kUnavailable, {"shutting down"});
  captures_.complete();
  eventually([&] { return control_->status().state == ProfileControl::State::kIdle; }, "the capture to be written");
  EXPECT_TRUE(std::filesystem::exists(root_ / "one" / "report.txt")) << "what is complete is written";
  test::expect_error([&] { control_->start({}, "two"); }, ErrorCode::kUnavailable, {"shutting down"});
}

}  // namespace
}  // namespace ferry
