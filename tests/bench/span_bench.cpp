#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "profiler/span.h"

// What a span costs the thread that records it: the budget is 25 ns when its level is on and 1 ns when it is off. Prints the
// median, the best and the worst of many rounds; exits with 1 if the spans that were to be recorded are not all there.

namespace {

using ferry::recorder;
using ferry::Span;
using ferry::TraceLevel;
using ferry::Zone;
using std::chrono::duration;
using std::chrono::steady_clock;

constexpr int kRounds = 101;
constexpr int kSpans = 20'000;

/// Keeps the loop's counter unknown to the optimiser, in both loops alike.
void touch(int& i) { asm volatile("" : "+r"(i)); }

template <class Body>
double ns_each(Body&& body) {
  const auto start = steady_clock::now();
  for (int i = 0; i < kSpans; ++i) {
    touch(i);
    body(i);
  }
  return duration<double, std::nano>(steady_clock::now() - start).count() / kSpans;
}

template <class Body>
void print(const char* what, Body&& body) {
  std::vector<double> costs;
  for (int round = 0; round < kRounds; ++round) {
    const double empty = ns_each([](int) {});
    costs.push_back(ns_each(body) - empty);
  }
  std::sort(costs.begin(), costs.end());
  std::printf("%-32s %8.2f ns   (%.2f to %.2f)\n", what, costs[kRounds / 2], costs.front(), costs.back());
}

/// Whether a capture of `kSpans` spans holds them all, each with its number.
bool verify() {
  recorder().start({});
  for (int i = 0; i < kSpans; ++i) {
    const Span span(Zone::kRouter, i);
  }
  const ferry::RankCapture capture = recorder().stop();
  const std::vector<ferry::SpanRecord>& records = capture.threads.at(0).records;
  if (records.size() != kSpans) return false;
  for (int i = 0; i < kSpans; ++i) {
    if (records[static_cast<std::size_t>(i)].a != static_cast<uint32_t>(i)) return false;
  }
  std::printf("verified %d spans; the recorder itself says %.1f ns a span\n", kSpans, capture.span_cost_ns);
  return true;
}

}  // namespace

int main() {
  recorder().register_thread("bench");
  ferry::check_context() = {.rank = 0, .step = 1, .layer = 2};
  std::printf("clock: %s\n", ferry::ticks_are_tsc() ? "time stamp counter" : "CLOCK_MONOTONIC");
  if (!verify()) {
    std::fprintf(stderr, "spans are missing or wrong\n");
    return 1;
  }
  const auto span = [](int i) { const Span recorded(Zone::kRouter, i); };
  print("the clock alone, twice", [](int) {
    static uint64_t sum = 0;
    sum += ferry::now_ticks() + ferry::now_ticks();
    asm volatile("" : "+r"(sum));
  });
  print("off", span);
  recorder().set_idle_level(TraceLevel::kSteps);
  print("flight recorder, above its level", span);
  recorder().set_idle_level(TraceLevel::kOperators);
  print("on, into the ring", span);
  recorder().set_idle_level(TraceLevel::kOff);
  recorder().start({.max_bytes = int64_t{256} << 20});
  print("on, while a capture drains", span);
  recorder().stop();
  return 0;
}
