#include "runtime/server/profile_control.h"

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/server/http/http_server.h"
#include "runtime/server/profile_routes.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_capture.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

using test::RawClient;
using test::status_of;

/// Captures of two steps, complete when they are stopped, as an engine would give them.
class MadeCaptures : public CaptureSource {
 public:
  void start(const TracePlan& plan) override {
    const std::scoped_lock lock(mutex_);
    if (is_running_) throw Error(ErrorCode::kFailedPrecondition, "a capture is running");
    is_running_ = true;
    last_plan_ = plan;
  }
  void stop() override {
    const std::scoped_lock lock(mutex_);
    if (!std::exchange(is_running_, false)) throw Error(ErrorCode::kFailedPrecondition, "no capture is running");
    give();
  }
  void save_snapshot() override {
    const std::scoped_lock lock(mutex_);
    if (is_running_) throw Error(ErrorCode::kFailedPrecondition, "a capture is running");
    give();
  }
  void set_on_capture(std::function<void(Capture)> on_capture) override {
    const std::scoped_lock lock(mutex_);
    on_capture_ = std::move(on_capture);
  }
  TracePlan last_plan() {
    const std::scoped_lock lock(mutex_);
    return last_plan_;
  }

 private:
  void give() {
    test::SmallCapture made(1, 1000);
    made.step(0, Phase::kDecode, 100, 200, 1, 1).step(1, Phase::kDecode, 300, 400, 1, 1);
    if (on_capture_) on_capture_(std::move(made.capture));
  }

  std::mutex mutex_;
  bool is_running_ = false;
  TracePlan last_plan_;
  std::function<void(Capture)> on_capture_;
};

class ProfileControlTest : public ::testing::Test {
 protected:
  ProfileControlTest() {
    HttpRouter router;
    add_profile_routes(router, control_);
    server_.emplace(HttpServerOptions{.address = "127.0.0.1:0", .limits = {}}, access_, std::move(router));
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

}  // namespace
}  // namespace ferry
