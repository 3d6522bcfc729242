#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/server/http/http_server.h"
#include "runtime/server/otlp/request_spans.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/reserved_port.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kParent = "00f067aa0ba902b7";

std::string traceparent(const std::string& flags = "01") { return std::string("00-") + kTrace + "-" + kParent + "-" + flags; }

TEST(TraceContext, IsReadAsW3cHasIt) {
  const auto context = parse_trace_context(traceparent(), "vendor=a,other=b");
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->parent_id, kParent);
  EXPECT_EQ(context->state, "vendor=a,other=b");
  EXPECT_TRUE(context->is_sampled);
  EXPECT_FALSE(parse_trace_context(traceparent("00"), "")->is_sampled);
  EXPECT_FALSE(parse_trace_context(traceparent("a2"), "")->is_sampled);
  EXPECT_TRUE(parse_trace_context("cc" + traceparent().substr(2) + "-more", "")) << "a later version may say more";
  EXPECT_EQ(parse_trace_context(traceparent(), "a\nb")->state, "");
  EXPECT_EQ(parse_trace_context(traceparent(), std::string(513, 'a'))->state, "");
}

TEST(TraceContext, AnythingElseIsNone) {
  const std::string good = traceparent();
  const std::vector<std::string> texts = {"",
                                          good.substr(1),
                                          good + "-more",
                                          "ff" + good.substr(2),
                                          "cc" + good.substr(2) + "x",
                                          "00-" + std::string(32, '0') + "-" + kParent + "-01",
                                          std::string("00-") + kTrace + "-" + std::string(16, '0') + "-01",
                                          "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                                          good.substr(0, 54) + "g",
                                          std::string(55, '-')};
  for (const std::string& text : texts) EXPECT_FALSE(parse_trace_context(text, "")) << text;
}

RequestSpan sample_span() {
  RequestSpan span{.trace_id = kTrace, .span_id = "b7ad6b7169203331", .parent_id = kParent, .start_ns = 1, .end_ns = 9};
  span.request_id = "cmpl-1";
  span.prompt_tokens = 7;
  span.temperature = 0.7;
  span.queue_s = 0.25;
  span.first_token_s = 1;
  span.total_s = 3;
  return span;
}

/// Values by key, as OTLP has them.
std::map<std::string, json> attributes_of(const json& span) {
  std::map<std::string, json> values;
  for (const json& attribute : span.at("attributes")) values[attribute.at("key")] = attribute.at("value");
  return values;
}

json span_of(const std::string& text) {
  return json::parse(text).at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").at(0);
}

TEST(OtlpJson, HasWhatVllmTells) {
  const std::vector<RequestSpan> spans = {sample_span()};
  const std::string text = to_otlp_json(spans, {.service_name = "mine", .service_version = "1"});
  EXPECT_EQ(json::parse(text)["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "mine");
  const json span = span_of(text);
  EXPECT_EQ(span["name"], "llm_request");
  EXPECT_EQ(span["kind"], 2);
  EXPECT_EQ(span["parentSpanId"], kParent);
  EXPECT_EQ(span["endTimeUnixNano"], "9") << "64-bit numbers are texts";
  EXPECT_FALSE(span.contains("status"));
  const auto values = attributes_of(span);
  EXPECT_EQ(values.at("gen_ai.request.id")["stringValue"], "cmpl-1");
  EXPECT_EQ(values.at("gen_ai.usage.prompt_tokens")["intValue"], "7");
  EXPECT_EQ(values.at("gen_ai.request.temperature")["doubleValue"], 0.7);
  EXPECT_EQ(values.at("gen_ai.latency.time_in_queue")["doubleValue"], 0.25);
  EXPECT_EQ(values.at("gen_ai.latency.time_to_first_token")["doubleValue"], 1);
  EXPECT_EQ(values.at("gen_ai.latency.time_in_model_prefill")["doubleValue"], 0.75);
  EXPECT_EQ(values.at("gen_ai.latency.time_in_model_decode")["doubleValue"], 2);
  EXPECT_EQ(values.at("gen_ai.latency.time_in_model_inference")["doubleValue"], 2.75);
  EXPECT_EQ(values.at("gen_ai.latency.e2e")["doubleValue"], 3);
}

TEST(OtlpJson, ARequestWithoutATokenHasNoTimesOfTokens) {
  RequestSpan span = sample_span();
  span.first_token_s.reset();
  span.error = "rank 2 was lost";
  const std::vector<RequestSpan> spans = {span};
  const json object = span_of(to_otlp_json(spans, {}));
  EXPECT_EQ(attributes_of(object).count("gen_ai.latency.time_to_first_token"), 0U);
  EXPECT_EQ(object["status"]["code"], 2);
  EXPECT_EQ(object["status"]["message"], "rank 2 was lost");
}

/// A collector: what it was sent, and what it says to the next attempts.
class Collector {
 public:
  explicit Collector(std::vector<SendResult> answers = {}, int64_t num_rejected = 0)
      : answers_(std::move(answers)), num_rejected_(num_rejected) {}

  SpanExporter::Send sender() {
    return [this](const std::string& text) -> SendAnswer {
      std::unique_lock lock(mutex_);
      ++num_attempts_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !is_stuck_; });
      const SendResult answer = answers_.empty() ? SendResult::kTaken : answers_.front();
      if (answers_.size() > 0) answers_.erase(answers_.begin());
      if (answer == SendResult::kTaken) sent_.push_back(text);
      return {.result = answer, .num_rejected = num_rejected_, .complaint = "it says no"};
    };
  }
  void stick(bool is_stuck) {
    const std::scoped_lock lock(mutex_);
    is_stuck_ = is_stuck;
    changed_.notify_all();
  }
  void wait_for_attempts(int count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kTestLimit, [&] { return num_attempts_ >= count; }))
        << "waited for " << count << " attempts; there were " << num_attempts_;
  }
  int num_attempts() {
    const std::scoped_lock lock(mutex_);
    return num_attempts_;
  }
  std::size_t num_sent_spans() const {
    std::size_t count = 0;
    for (const std::string& text : sent_) count += json::parse(text)["resourceSpans"][0]["scopeSpans"][0]["spans"].size();
    return count;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SendResult> answers_;
  const int64_t num_rejected_;  // of each message
  std::vector<std::string> sent_;
  int num_attempts_ = 0;
  bool is_stuck_ = false;
};

void wait_for_end_of_batch(const SpanExporter& exporter) {
  eventually([&] { return exporter.count().sent + exporter.count().dropped_unsent > 0; }, "the end of a batch");
}

TEST(SpanExporter, WhatIsQueuedAtTheEndIsSent) {
  Collector collector;
  {
    ManualClock clock;
    SpanExporter exporter({}, collector.sender(), clock);
    for (int i = 0; i < 5; ++i) exporter.add(sample_span());
  }
  EXPECT_EQ(collector.num_sent_spans(), 5U);
}

TEST(SpanExporter, NeverWaitsForTheCollector) {
  Collector collector;
  collector.stick(true);
  ManualClock clock;
  SpanExporter exporter({}, collector.sender(), clock);
  for (std::size_t i = 0; i < SpanExporter::kMaxBatch; ++i) exporter.add(sample_span());
  collector.wait_for_attempts(1);  // the first batch is on its way, and stays there
  for (std::size_t i = 0; i < SpanExporter::kMaxQueued + 7; ++i) exporter.add(sample_span());
  EXPECT_EQ(exporter.count().dropped_full, 7);
  EXPECT_EQ(exporter.count().sent, 0);
  collector.stick(false);
}

TEST(SpanExporter, TriesAgainWhereItMayHelp) {
  Collector collector({SendResult::kTryAgain, SendResult::kTryAgain, SendResult::kTaken});
  ManualClock clock;
  SpanExporter exporter({}, collector.sender(), clock);
  for (std::size_t i = 0; i < SpanExporter::kMaxBatch; ++i) exporter.add(sample_span());
  for (int num_attempts = 1; num_attempts < 3; ++num_attempts) {
    collector.wait_for_attempts(num_attempts);
    clock.wait_for_sleepers(1);
    EXPECT_EQ(clock.next_wake() - clock.now(), num_attempts * SpanExporter::kBatchPeriod) << "the pause doubles";
    clock.advance_to_next_wake();
  }
  wait_for_end_of_batch(exporter);
  EXPECT_EQ(exporter.count().sent, int64_t{SpanExporter::kMaxBatch});
}

TEST(SpanExporter, GivesABatchUpAfterSomeAttempts) {
  Collector collector(std::vector<SendResult>(100, SendResult::kTryAgain));
  ManualClock clock;
  SpanExporter exporter({}, collector.sender(), clock);
  for (std::size_t i = 0; i < SpanExporter::kMaxBatch; ++i) exporter.add(sample_span());
  for (int num_attempts = 1; num_attempts < SpanExporter::kMaxAttempts; ++num_attempts) {
    collector.wait_for_attempts(num_attempts);
    clock.advance_to_next_wake();
  }
  wait_for_end_of_batch(exporter);
  EXPECT_EQ(exporter.count().dropped_unsent, int64_t{SpanExporter::kMaxBatch});
}

TEST(SpanExporter, AFewSpansWaitForOthers) {
  Collector collector;
  ManualClock clock;
  SpanExporter exporter({}, collector.sender(), clock);
  exporter.add(sample_span());
  clock.wait_for_sleepers(1);
  EXPECT_EQ(clock.next_wake() - clock.now(), SpanExporter::kBatchPeriod);
  exporter.add(sample_span());
  clock.advance_to_next_wake();
  wait_for_end_of_batch(exporter);
  EXPECT_EQ(exporter.count().sent, 2);
  EXPECT_EQ(collector.num_attempts(), 1);
}

TEST(SpanExporter, CountsWhatWasNotTaken) {
  Collector collector({SendResult::kRefused});
  ManualClock clock;
  SpanExporter exporter({}, collector.sender(), clock);
  for (std::size_t i = 0; i < SpanExporter::kMaxBatch; ++i) exporter.add(sample_span());
  wait_for_end_of_batch(exporter);
  EXPECT_EQ(exporter.count().dropped_unsent, int64_t{SpanExporter::kMaxBatch});
}

TEST(SpanExporter, CountsWhatWasRejected) {
  Collector collector({}, 7);
  ManualClock clock;
  SpanExporter exporter({}, collector.sender(), clock);
  for (std::size_t i = 0; i < SpanExporter::kMaxBatch; ++i) exporter.add(sample_span());
  wait_for_end_of_batch(exporter);
  EXPECT_EQ(exporter.count().sent, int64_t{SpanExporter::kMaxBatch} - 7);
  EXPECT_EQ(exporter.count().dropped_unsent, 7);
}

TEST(SpanExporter, LeavesACollectorThatIsAway) {
  Collector collector(std::vector<SendResult>(100, SendResult::kTryAgain));
  ManualClock clock;
  SpanExporter exporter({}, collector.sender(), clock);
  for (std::size_t i = 0; i < SpanExporter::kMaxQueued; ++i) exporter.add(sample_span());
  collector.wait_for_attempts(1);
}

TEST(TracesUrl, HasThePathOfOtlp) {
  EXPECT_EQ(traces_url("--otlp", "http://localhost:4318"), "http://localhost:4318/v1/traces");
  EXPECT_EQ(traces_url("--otlp", "http://localhost:4318/"), "http://localhost:4318/v1/traces");
  EXPECT_EQ(traces_url("--otlp", "https://collector/own/path"), "https://collector/own/path");
  for (const char* text : {"", "localhost:4318", "grpc://localhost:4317", "http://", "http://user@host"})
    EXPECT_THROW(traces_url("--otlp", text), Error) << text;
}

TEST(TracesUrl, NamesTheOptionThatWasGiven) {
  for (const char* option : {"--otlp", "--otlp-traces-endpoint"}) {
    try {
      traces_url(option, "localhost:4318");
      FAIL() << option;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), std::string(option) + ": 'localhost:4318'; allowed: http[s]://HOST[:PORT][/PATH]");
    }
  }
}

constexpr SendTimes kPatient{.attempt = kTestLimit, .connect = kTestLimit};

TEST(HttpSender, PostsJson) {
  std::promise<std::string> body;
  HttpRouter router;
  router.add("POST", "/v1/traces", {.handler = {}, .blocking = [&](const HttpRequest& request) -> HttpResponse {
                                      body.set_value(request.body);
                                      return {.body = "{}"};
                                    }});
  router.add("POST", "/busy", {.handler = {}, .blocking = [](const HttpRequest&) { return http_error(503, "busy"); }});
  const Access access;
  const HttpServer server({.address = "127.0.0.1:0", .limits = test::patient_limits()}, access, std::move(router));
  const std::string base = "http://" + server.address();
  EXPECT_EQ(http_sender(traces_url("--otlp", base), kPatient)("{\"a\": 1}").result, SendResult::kTaken);
  EXPECT_EQ(body.get_future().get(), "{\"a\": 1}");
  const SendAnswer busy = http_sender(base + "/busy", kPatient)("{}");
  EXPECT_EQ(busy.result, SendResult::kTryAgain);
  EXPECT_EQ(busy.complaint, base + "/busy answers with status 503");
  EXPECT_EQ(http_sender(base + "/nowhere", kPatient)("{}").result, SendResult::kRefused);
  const test::ReservedPort nobody;
  EXPECT_EQ(http_sender("http://" + nobody.address() + "/v1/traces", kPatient)("{}").result, SendResult::kTryAgain);
}

/// The attempt has a real deadline, and however late it passes the verdict is the same.
TEST(HttpSender, GivesUpACollectorThatDoesNotAnswer) {
  std::promise<void> is_over;
  HttpRouter router;
  router.add("POST", "/v1/traces", {.handler = {}, .blocking = [&](const HttpRequest&) -> HttpResponse {
                                      is_over.get_future().wait();
                                      return {};
                                    }});
  const Access access;
  const HttpServer server({.address = "127.0.0.1:0", .limits = test::patient_limits()}, access, std::move(router));
  const SpanExporter::Send post =
      http_sender("http://" + server.address() + "/v1/traces", {.attempt = std::chrono::seconds(1), .connect = kTestLimit});
  EXPECT_EQ(post("{}").result, SendResult::kTryAgain);
  is_over.set_value();
}

TEST(HttpSender, ReadsWhatIsRejected) {
  std::string says;
  HttpRouter router;
  router.add("POST", "/v1/traces",
             {.handler = {}, .blocking = [&](const HttpRequest&) -> HttpResponse { return {.body = says}; }});
  const Access access;
  const HttpServer server({.address = "127.0.0.1:0", .limits = test::patient_limits()}, access, std::move(router));
  const std::string url = "http://" + server.address() + "/v1/traces";
  const SpanExporter::Send post = http_sender(url, kPatient);
  const auto answer = [&](const std::string& body) {
    says = body;
    return post("{}");
  };
  const SendAnswer some = answer(R"({"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too\nold"}})");
  EXPECT_EQ(some.result, SendResult::kTaken);
  EXPECT_EQ(some.num_rejected, 3);
  EXPECT_EQ(some.complaint, url + " rejects 3 spans: too\\x0aold");
  EXPECT_EQ(answer(R"({"partialSuccess": {"rejectedSpans": 1}})").complaint, url + " rejects 1 span") << "a number is one, too";
  EXPECT_EQ(answer(R"({"partialSuccess": {"errorMessage": "soon too old"}})").complaint, "soon too old");
  for (const char* body :
       {"{}", "", "no JSON", "[1]", R"({"partialSuccess": 7})", R"({"partialSuccess": {"rejectedSpans": "-4"}})"}) {
    const SendAnswer all = answer(body);
    EXPECT_EQ(all.result, SendResult::kTaken) << body;
    EXPECT_EQ(all.num_rejected, 0) << body;
    EXPECT_EQ(all.complaint, "") << body;
  }
}

/// What one request's events make of it.
std::optional<json> observed(const std::optional<TraceContext>& caller, const std::vector<GenerateEvent>& events) {
  std::string sent;
  int num_heard = 0;
  {
    SpanExporter exporter({}, [&](const std::string& text) {
      sent = text;
      return SendAnswer{};
    });
    RequestSpans spans(exporter, "demo");
    Request request;
    request.sampling.temperature = 0.7F;
    const EventSink sink = spans.observe(request, caller, [&](const GenerateEvent&) { ++num_heard; });
    for (const GenerateEvent& event : events) sink(event);
  }
  EXPECT_EQ(num_heard, static_cast<int>(events.size())) << "the owner hears everything";
  return sent.empty() ? std::nullopt : std::optional(span_of(sent));
}

GenerateEvent last_event() {
  GenerateEvent event{.finish_reason = FinishReason::kLength};
  event.request_id = "cmpl-1";
  event.completion_tokens = 4;
  event.timings = {.queue_ns = 1000, .first_token_ns = 2000, .total_ns = 5000};
  return event;
}

TEST(RequestSpans, AreMadeOfTheLastEvent) {
  const auto span = observed({}, {{.token_ids = {1}}, last_event()});
  ASSERT_TRUE(span);
  EXPECT_EQ(span->at("traceId").get<std::string>().size(), 32U);
  EXPECT_EQ(span->at("spanId").get<std::string>().size(), 16U);
  EXPECT_FALSE(span->contains("parentSpanId"));
  const auto time = [&](const char* name) { return std::stoll(span->at(name).get<std::string>()); };
  EXPECT_EQ(time("endTimeUnixNano") - time("startTimeUnixNano"), 5000);
  const auto values = attributes_of(*span);
  EXPECT_EQ(values.at("gen_ai.request.temperature")["doubleValue"], 0.7) << "as it was written, not as a float is";
  EXPECT_EQ(values.at("gen_ai.usage.completion_tokens")["intValue"], "4");
  EXPECT_EQ(values.at("gen_ai.response.finish_reason")["stringValue"], "length");
}

TEST(RequestSpans, GoOnWithTheCallersTrace) {
  const auto span = observed(parse_trace_context(traceparent(), "a=b"), {last_event()});
  ASSERT_TRUE(span);
  EXPECT_EQ(span->at("traceId"), kTrace);
  EXPECT_EQ(span->at("parentSpanId"), kParent);
  EXPECT_EQ(span->at("traceState"), "a=b");
  EXPECT_FALSE(observed(parse_trace_context(traceparent("00"), ""), {last_event()})) << "the caller records nothing";
}

TEST(RequestSpans, FailuresSayWhy) {
  GenerateEvent failed{.finish_reason = FinishReason::kError};
  failed.error = Error(ErrorCode::kUnavailable, "rank 2 was lost");
  EXPECT_EQ(observed({}, {failed})->at("status")["message"], "rank 2 was lost");
}

}  // namespace
}  // namespace ferry
