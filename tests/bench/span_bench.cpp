#include <algorithm>
#include <chrono>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "profiler/span.h"

// What a span costs the thread that records it: the budget is a reading of the clock and 10 ns where spans follow one another
// directly (SpanChain), two readings elsewhere, and 1 ns when its level is off. Prints the median, the best and the worst of
// many rounds; exits with 1 if the spans that were to be recorded are not all there.

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

/// `spans`: that one call of the body records.
template <class Body>
void print(const char* what, Body&& body, int spans = 1) {
  std::vector<double> costs;
  for (int round = 0; round < kRounds; ++round) {
    const double empty = ns_each([](int) {});
    costs.push_back((ns_each(body) - empty) / spans);
  }
  std::sort(costs.begin(), costs.end());
  std::printf("%-32s %8.2f ns   (%.2f to %.2f)\n", what, costs[kRounds / 2], costs.front(), costs.back());
}

/// The spans of a DeltaNet layer with experts in a decode step, chained and apart as the layer has them.
void run_layer() {
  const auto chained = [](std::initializer_list<Zone> zones) {
    const ferry::SpanChain chain;
    for (const Zone zone : zones) const Span recorded(zone, 1);
  };
  chained({Zone::kAdd, Zone::kInputNorm});
  chained({Zone::kInProjQkv});
  chained({Zone::kCausalConv1d, Zone::kDeltaGates, Zone::kRecurrentDeltaRule, Zone::kGatedNorm});
  chained({Zone::kOutProj});
  chained({Zone::kAdd, Zone::kPostAttentionNorm});
  chained({Zone::kRouter, Zone::kGatingTopK});
  chained({Zone::kInitRouting, Zone::kDispatch, Zone::kDispatch, Zone::kDispatch});
  chained({Zone::kSharedGateUp, Zone::kSharedDown});
  chained({Zone::kCombine});
  chained({Zone::kSharedMerge});
}
constexpr int kSpansOfLayer = 20;

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
  print("the clock alone", [](int) {
    static uint64_t sum = 0;
    sum += ferry::now_ticks();
    asm volatile("" : "+r"(sum));
  });
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
  {
    const ferry::SpanChain chain;
    print("on, in a chain", span);
  }
  print(
      "on, as operators of a layer", [](int) { run_layer(); }, kSpansOfLayer);
  recorder().set_idle_level(TraceLevel::kOff);
  recorder().start({.max_bytes = int64_t{256} << 20});
  print("on, while a capture drains", span);
  recorder().stop();
  return 0;
}
