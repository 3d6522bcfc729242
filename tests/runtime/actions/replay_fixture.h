#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/small_capture.h"

// A made run whose costs are known: what a replay finds and predicts can be worked out by hand.

namespace ferry::test {

/// One layer, sixteen experts, two a row; times in microseconds.
struct KnownRun {
  int32_t num_workers = 2;  // 0: one process
  int32_t num_experts = 16;
  double own_us = 100, own_row_us = 10;  // of a step, and of each of its rows
  double own_sequence_us = 0;            // and of each sequence
  double guess_us = 0;                   // what the layer that guesses takes for each sequence's next token; 0: nobody guesses
  double head_us = 30;
  double expert_us = 20, expert_row_us = 2;  // of an expert with rows, and of each of these
  double link_us = 40;                       // what an exchange takes beside the slowest worker
  std::vector<double> slow;                  // [num_workers] times as long; empty: all alike
  std::vector<double> slow_way;              // [num_workers] times as long on their way; empty: all alike
  double slowing = 0;                        // of the time in which another worker works, what share each loses
  double noise = 0;                          // by what share a worker's calls are longer or shorter at most
  double sample_us = 0;                      // of each sequence that decodes
  double publish_us = 0;                     // of a step: its tokens are handed out
  int32_t hot_worker = -1;                   // all rows take its first two experts in three of four steps
  int64_t wiggle_us = 0;                     // by which every other step's own work is longer
  bool rows_are_drafts = false;
  Zone own_zone = Zone::kAttention;  // of own work
};

class KnownCapture {
 public:
  explicit KnownCapture(const KnownRun& run) : run_(run), small_(run.num_workers + 1, 1) {
    CaptureInfo& info = small_.capture.info;
    info.command = "build/ferry serve --model m";
    info.model.name = "m";
    info.model.dtype = "bf16";
    info.model.top_k = 2;
    info.level = TraceLevel::kOperators;
    info.model.layer_types = {"full_attention", "mtp"};
    info.expert_tokens = {std::vector<int64_t>(static_cast<std::size_t>(run.num_experts), 0)};
    for (int32_t e = 0; e < run.num_experts; ++e) info.expert_rank.push_back(worker_of(e));
  }

  int32_t worker_of(int32_t expert) const {
    return run_.num_workers == 0 ? 0 : 1 + expert * run_.num_workers / run_.num_experts;
  }
  CaptureInfo& info() { return small_.capture.info; }
  RankCapture& rank(int32_t r) { return small_.capture.ranks.at(static_cast<std::size_t>(r)); }
  uint64_t now() const { return now_; }
  SmallCapture& small() { return small_; }

  /// A step of so many rows; returns its microseconds.
  double step(Phase phase, int64_t rows, int64_t sequences);
  /// A pause.
  void wait(double us) { now_ += ns(us); }
  Capture take() {
    for (RankCapture& r : small_.capture.ranks) r.end = now_ + 1000, r.span_cost_ns = 0;
    return std::move(small_.capture);
  }
  uint32_t num_steps() const { return step_; }
  /// How much sooner the last worker had been done, were their work even: of all steps.
  double uneven_us() const { return uneven_us_; }

 private:
  /// Workers begin at once, and each of those still at work is slowed by all others of them.
  void slow_down(std::vector<double>& busy) {
    std::vector<double*> order;
    double sum = 0;
    for (std::size_t w = 1; w < busy.size(); ++w) {
      busy[w] *= 1 + run_.noise * std::uniform_real_distribution(-1.0, 1.0)(random_);
      sum += busy[w];
      if (busy[w] > 0) order.push_back(&busy[w]);
    }
    std::ranges::sort(order, {}, [](const double* us) { return *us; });
    double alone = 0, now = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const double others = static_cast<double>(order.size() - i - 1);
      now += (*order[i] - alone) / (1 - run_.slowing * others);
      alone = std::exchange(*order[i], now);
    }
    uneven_us_ += now - sum / run_.num_workers / (1 - run_.slowing * (run_.num_workers - 1));
  }
  /// What the coordinator does next for so long.
  void work(Zone zone, double us, int64_t rows) {
    if (us <= 0) return;
    small_.span(0, zone, now_, now_ + ns(us), static_cast<uint32_t>(rows), 0, {step_ - 1, kNoLayer});
    now_ += ns(us);
  }
  static uint64_t ns(double us) { return static_cast<uint64_t>(us * 1000 + 0.5); }

  const KnownRun run_;
  SmallCapture small_;
  uint64_t now_ = 1000;
  uint32_t step_ = 0;
  double uneven_us_ = 0;
  std::mt19937 random_{7};
};

inline double KnownCapture::step(Phase phase, int64_t rows, int64_t sequences) {
  const uint64_t begin = now_;
  const uint32_t s = step_++;
  const auto a = static_cast<uint32_t>(rows);
  const double own = run_.own_us + run_.own_row_us * static_cast<double>(rows) +
                     run_.own_sequence_us * static_cast<double>(sequences) + static_cast<double>(s % 2 * run_.wiggle_us);
  small_.span(0, run_.own_zone, now_, now_ + ns(own), a, 0, {s, 0});
  now_ += ns(own);
  std::vector<int64_t> asked(static_cast<std::size_t>(run_.num_experts), 0);
  for (int64_t r = 0; r < rows; ++r) {
    const bool is_hot = run_.hot_worker >= 0 && (s + r) % 4 != 3;
    for (int64_t k = 0; k < 2; ++k) {
      const int64_t any = (static_cast<int64_t>(s) * 5 + r * 7 + k * (run_.num_experts / 2)) % run_.num_experts;
      const int64_t hot = static_cast<int64_t>(run_.hot_worker) * run_.num_experts / std::max(1, run_.num_workers) + k;
      ++asked[static_cast<std::size_t>(is_hot ? hot : any)];
    }
  }
  std::vector<double> busy(static_cast<std::size_t>(run_.num_workers) + 1, 0);
  std::vector<uint32_t> worker_rows(busy.size(), 0), touched(busy.size(), 0);
  for (int32_t e = 0; e < run_.num_experts; ++e) {
    const int64_t n = asked[static_cast<std::size_t>(e)];
    small_.capture.info.expert_tokens[0][static_cast<std::size_t>(e)] += n;
    if (n == 0) continue;
    const auto w = static_cast<std::size_t>(worker_of(e));
    busy[w] += run_.expert_us + run_.expert_row_us * static_cast<double>(n);
    worker_rows[w] += static_cast<uint32_t>(n), ++touched[w];
  }
  for (std::size_t w = 0; w < run_.slow.size(); ++w) busy[w + 1] *= run_.slow[w];
  if (run_.num_workers > 1) slow_down(busy);
  if (run_.num_workers == 0) {
    small_.span(0, Zone::kGroupedGateUp, now_, now_ + ns(busy[0]), worker_rows[0], touched[0], {s, 0});
    now_ += ns(busy[0]);
  } else {
    const uint64_t posted = now_;
    for (std::size_t w = 1; w < busy.size(); ++w) {
      const auto r = static_cast<int32_t>(w);
      const double way_us = run_.link_us / 2 * (run_.slow_way.empty() ? 1 : run_.slow_way[w - 1]);
      const uint64_t arrived = posted + ns(way_us), replied = arrived + ns(busy[w]);
      const uint32_t bytes = 100 * worker_rows[w] + 1;
      small_.span(0, Zone::kDispatchSend, posted, arrived, bytes, static_cast<uint32_t>(w), {s, 0});
      small_.span(r, Zone::kDispatchReceive, posted, arrived, bytes, 0, {s, 0});
      if (worker_rows[w] > 0) small_.span(r, Zone::kGroupedGateUp, arrived, replied, worker_rows[w], touched[w], {s, 0});
      const uint64_t back = replied + ns(way_us), seen = std::max(now_, back);
      small_.span(r, Zone::kCombineSend, replied, back, bytes, 0, {s, 0});
      small_.span(0, Zone::kCombineReceive, posted, seen, bytes, static_cast<uint32_t>(w), {s, 0});
      small_.span(0, Zone::kRankRows, seen, seen, worker_rows[w], static_cast<uint32_t>(w), {s, 0});
      if (seen > now_) small_.span(0, Zone::kWaitCombine, now_, seen, 0, static_cast<uint32_t>(w), {s, 0});
      now_ = seen;
    }
  }
  work(Zone::kLmHead, run_.head_us, sequences);
  work(Zone::kSample, run_.sample_us * static_cast<double>(sequences), sequences);
  work(Zone::kPublish, run_.publish_us, sequences);
  if (run_.guess_us > 0) {
    const auto rows_each = static_cast<uint32_t>(sequences);
    const uint64_t attended = now_ + ns(run_.guess_us), guessed = attended + ns(1);
    small_.span(0, Zone::kDraft, now_, guessed, rows_each, rows_each, {s, kNoLayer});
    small_.span(0, Zone::kAttention, now_, attended, rows_each, 0, {s, 1});
    small_.span(0, Zone::kGroupedGateUp, attended, guessed, 2 * rows_each, 2 * rows_each, {s, 1});  // its experts are quick
    now_ = guessed;
  }
  small_.step(s, phase, begin, now_, a, static_cast<uint32_t>(sequences));
  const double took = static_cast<double>(now_ - begin) / 1000;
  now_ += 1000;
  return took;
}

}  // namespace ferry::test
