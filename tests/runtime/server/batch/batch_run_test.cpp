#include "runtime/server/batch/batch_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/server/batch/batch_progress.h"
#include "runtime/server/http/router.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_folder.h"

namespace ferry::batch {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

/// Routes whose answers the test gives.
class ScriptedRoutes {
 public:
  ScriptedRoutes() {
    router_.add("POST", "/v1/completions",
                {.handler = [this](HttpRequest request, HttpReply reply) { handle(std::move(request), std::move(reply)); },
                 .blocking = {}});
  }

  const HttpRouter& router() const { return router_; }
  std::map<std::string, int> num_asked;              // by prompt
  std::function<int(const std::string&)> status_of;  // of a prompt; 0: it is answered later
  std::vector<std::pair<std::string, HttpReply>> held;
  std::size_t most_held = 0;

  static HttpResponse answer_to(const std::string& prompt, int status) {
    return {.status = status, .body = json{{"text", prompt + "!"}}.dump()};
  }

 private:
  void handle(HttpRequest request, HttpReply reply) {
    const auto prompt = json::parse(request.body).at("prompt").get<std::string>();
    EXPECT_TRUE(request.header("x-request-id"));
    ++num_asked[prompt];
    const int status = status_of ? status_of(prompt) : 200;
    if (status == 0) {
      held.emplace_back(prompt, std::move(reply));
      most_held = std::max(most_held, held.size());
      return;
    }
    std::thread([reply = std::make_shared<HttpReply>(std::move(reply)), prompt, status] {
      reply->send(answer_to(prompt, status));
    }).detach();
  }

  HttpRouter router_;
};

class BatchRunTest : public ::testing::Test {
 protected:
  static std::string line_of(const std::string& id) {
    return json{{"custom_id", id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", {{"prompt", "p" + id}}}}.dump() +
           "\n";
  }
  void write_input(const std::string& text) const { std::ofstream(folder_.path() / "in") << text; }
  std::vector<json> answers() const {
    std::vector<json> all;
    std::ifstream file(folder_.path() / "out");
    for (std::string line; std::getline(file, line);) all.push_back(json::parse(line));
    return all;
  }
  std::multiset<std::string> ids() const {
    std::multiset<std::string> all;
    for (const json& answer : answers())
      all.insert(answer["custom_id"].is_null() ? "-" : answer["custom_id"].get<std::string>());
    return all;
  }
  void open(int64_t concurrency = 2) {
    run_.reset();
    output_.reset();
    input_.emplace(folder_.path() / "in", 10'000);
    output_.emplace(folder_.path() / "out", input_->fd());
    run_.emplace(routes_.router(), *input_, *output_,
                 BatchRun::Options{.concurrency = concurrency, .limits = {}, .failure = [this] { return failure_; }});
  }
  void finish() {
    eventually([&] { return !run_->advance(milliseconds(20)); }, "all lines to be answered",
               [&] { return std::to_string(run_->counts().num_running) + " run"; });
    EXPECT_FALSE(run_->has_more());
  }

  test::TempFolder folder_;
  ScriptedRoutes routes_;
  std::optional<Error> failure_;
  std::optional<BatchInput> input_;
  std::optional<BatchOutput> output_;
  std::optional<BatchRun> run_;
};

TEST_F(BatchRunTest, AnswersEveryLineOnce) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += line_of(std::to_string(i));
  write_input(text + "nonsense\n" + line_of("7"));
  open(4);
  finish();
  EXPECT_EQ(run_->counts().num_answered, 50);
  EXPECT_EQ(run_->counts().num_failed, 2);
  EXPECT_EQ(run_->counts().done_bytes, input_->bytes());
  const std::multiset<std::string> all = ids();
  EXPECT_EQ(all.count("7"), 2U);
  EXPECT_EQ(all.count("-"), 1U);
  for (const json& answer : answers()) {
    if (answer["error"].is_null()) {
      EXPECT_EQ(answer["response"]["body"]["text"], "p" + answer["custom_id"].get<std::string>() + "!");
    } else if (answer["custom_id"] == "7") {
      EXPECT_EQ(answer["error"]["code"], "duplicate_custom_id");
    }
  }
  open();
  finish();
  EXPECT_EQ(run_->counts().num_skipped, 52);
  EXPECT_EQ(run_->counts().num_answered, 0);
  EXPECT_EQ(output_->num_failed(), 2);
  EXPECT_EQ(answers().size(), 52U);
  for (const auto& [prompt, count] : routes_.num_asked) EXPECT_EQ(count, 1) << prompt;
}

TEST_F(BatchRunTest, GoesOnWhereItWasLeft) {
  write_input(line_of("a") + line_of("b") + line_of("c") + line_of("d"));
  routes_.status_of = [](const std::string& prompt) { return prompt == "pb" ? 0 : 200; };
  open(2);
  eventually([&] { return run_->advance(milliseconds(5)) && ids().size() == 3; }, "answers to all lines but one");
  EXPECT_EQ(ids(), (std::multiset<std::string>{"a", "c", "d"}));
  EXPECT_TRUE(run_->has_more());
  EXPECT_EQ(run_->count_left(), 1);
  open(2);  // as if the process had been killed
  routes_.held.clear();
  routes_.status_of = nullptr;
  finish();
  EXPECT_EQ(ids(), (std::multiset<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(run_->counts().num_skipped, 3);
}

TEST_F(BatchRunTest, HoldsNoMoreThanItMayAtOnceAndStopsWhenAsked) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += line_of(std::to_string(i));
  write_input(text);
  routes_.status_of = [](const std::string&) { return 0; };
  open(3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(run_->advance(milliseconds(1)));
  EXPECT_EQ(run_->counts().num_running, 3);
  run_->stop_reading();
  for (auto& [prompt, reply] : routes_.held) reply.send(ScriptedRoutes::answer_to(prompt, 200));
  eventually([&] { return !run_->advance(milliseconds(5)); }, "the lines that run to be answered");
  EXPECT_EQ(routes_.most_held, 3U);
  EXPECT_EQ(answers().size(), 3U);
  EXPECT_TRUE(run_->has_more());
  EXPECT_EQ(run_->count_left(), 17);
}

TEST_F(BatchRunTest, AsksAgainWhenTheQueueWasFull) {
  std::string text;
  for (int i = 0; i < 12; ++i) text += line_of(std::to_string(i));
  write_input(text);
  std::map<std::string, int> tries;
  routes_.status_of = [&](const std::string& prompt) { return ++tries[prompt] <= 2 ? 503 : 200; };
  open(5);
  finish();
  EXPECT_EQ(run_->counts().num_failed, 0);
  EXPECT_EQ(answers().size(), 12U);
}

TEST_F(BatchRunTest, ErrorsOfOneLineAreThatLines) {
  write_input(line_of("a") + line_of("b") + line_of("c"));
  routes_.status_of = [](const std::string& prompt) { return prompt == "pb" ? 400 : 200; };
  open(1);
  finish();
  EXPECT_EQ(run_->counts().num_failed, 1);
  for (const json& answer : answers())
    EXPECT_EQ(answer["response"]["status_code"], answer["custom_id"] == "b" ? 400 : 200) << answer;
}

TEST_F(BatchRunTest, AnEngineThatFailedAnswersNothing) {
  write_input(line_of("a") + line_of("b"));
  routes_.status_of = [](const std::string&) { return 503; };
  failure_ = Error(ErrorCode::kUnavailable, "rank 2 is lost");
  open(2);
  const auto advance = [&] { eventually([&] { return !run_->advance(milliseconds(5)); }, "the engine's failure"); };
  EXPECT_THROW(advance(), Error);
  EXPECT_TRUE(answers().empty());
}

TEST_F(BatchRunTest, AnAnswerThatIsDroppedIsAnError) {
  write_input(line_of("a"));
  routes_.status_of = [](const std::string&) { return 0; };
  open(1);
  run_->advance(milliseconds(1));
  routes_.held.clear();
  finish();
  EXPECT_EQ(answers().front()["response"]["status_code"], 500);
}

TEST(BatchProgress, SaysHowFarItIs) {
  BatchProgress progress{.counts = {.num_skipped = 2, .num_answered = 10, .num_failed = 1, .num_running = 3, .done_bytes = 50},
                         .input_bytes = 100,
                         .num_tokens = 500,
                         .elapsed_s = 10};
  EXPECT_EQ(describe(progress, ProgressForm::kPlain),
            "50 %, 10 answered, 1 failed, 2 were before, 3 running, 50 tokens/s, 0:10");
  EXPECT_EQ(describe(progress, ProgressForm::kBar).substr(0, 27), "[############............] ");
  progress.input_bytes = 0;
  EXPECT_EQ(describe(progress, ProgressForm::kPlain).substr(0, 5), "100 %");
  EXPECT_EQ(duration_text(3723), "1:02:03");
}

}  // namespace
}  // namespace ferry::batch
