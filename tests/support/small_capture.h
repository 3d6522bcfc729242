#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "profiler/capture.h"
#include "profiler/report/views/table.h"

// Captures of a few spans, whose figures can be worked out by hand, and cells of the tables made from them.

namespace ferry::test {

/// Every clock ticks nanoseconds from 0, so that times in a table are those of the spans.
struct SmallCapture {
  struct Where {
    uint32_t step = kNoStep;
    int16_t layer = kNoLayer;
    uint8_t micro_batch = 0;
  };

  SmallCapture(int32_t world_size, uint64_t end_ns) {
    capture.info.world_size = world_size;
    for (int32_t r = 0; r < world_size; ++r) {
      RankCapture rank{.rank = r, .host = "host-" + std::to_string(r), .num_threads = 1, .begin = 0, .end = end_ns};
      rank.threads.push_back({.name = "engine", .tid = 100 + r, .num_lost = 0, .records = {}});
      capture.ranks.push_back(std::move(rank));
    }
  }

  SmallCapture& span(int32_t rank, Zone zone, uint64_t begin_ns, uint64_t end_ns, uint32_t a = 0, uint32_t b = 0) {
    return span(rank, zone, begin_ns, end_ns, a, b, {});
  }
  SmallCapture& span(int32_t rank, Zone zone, uint64_t begin_ns, uint64_t end_ns, uint32_t a, uint32_t b, Where where) {
    capture.ranks.at(static_cast<std::size_t>(rank))
        .threads[0]
        .records.push_back({.begin = begin_ns,
                            .end = end_ns,
                            .step = where.step,
                            .zone = zone,
                            .micro_batch = where.micro_batch,
                            .layer = where.layer,
                            .a = a,
                            .b = b});
    return *this;
  }
  SmallCapture& step(uint32_t number, Phase phase, uint64_t begin_ns, uint64_t end_ns, uint32_t tokens, uint32_t sequences) {
    return span(0, Zone::kStep, begin_ns, end_ns, tokens, pack_plan(phase, sequences), {number, kNoLayer});
  }
  /// Rows to a worker and its reply; `work` (if longer than nothing) is one GroupedMatmulSwiglu from arrival to reply.
  SmallCapture& exchange(int32_t worker, Where where, uint64_t posted_ns, uint64_t arrived_ns, uint64_t replied_ns,
                         uint64_t seen_ns, uint32_t rows, uint32_t bytes = 100) {
    const auto w = static_cast<uint32_t>(worker);
    span(0, Zone::kDispatchSend, posted_ns, arrived_ns, bytes, w, where);
    span(worker, Zone::kDispatchReceive, posted_ns, arrived_ns, bytes, 0, where);
    span(worker, Zone::kGroupedGateUp, arrived_ns, replied_ns, rows, 1, where);
    span(worker, Zone::kCombineSend, replied_ns, seen_ns, bytes, 0, where);
    return span(0, Zone::kCombineReceive, posted_ns, seen_ns, bytes, w, where);
  }

  /// What the rank's device ran, by its own clock; the rank has one from here on.
  SmallCapture& ran(int32_t rank, Zone zone, uint64_t begin_ns, uint64_t end_ns, uint32_t a, Where where,
                    bool is_continued = false) {
    RankCapture& recorded = capture.ranks.at(static_cast<std::size_t>(rank));
    if (recorded.device.name.empty()) {
      recorded.device = {.name = "GPU", .driver = "driver 1", .clock = "calibrated", .clock_bound_ns = 50};
      recorded.threads.push_back({.name = "GPU", .is_device = true, .records = {}});
    }
    recorded.threads.back().records.push_back(
        {.begin = begin_ns,
         .end = end_ns,
         .step = where.step,
         .zone = zone,
         .micro_batch = is_continued ? static_cast<uint8_t>(where.micro_batch | kContinuedBit) : where.micro_batch,
         .layer = where.layer,
         .a = a});
    return *this;
  }
  /// A value that a rank counted in a step.
  SmallCapture& counted(int32_t rank, Zone zone, uint64_t at_ns, uint32_t value, uint32_t step) {
    return span(rank, zone, at_ns, at_ns, value, 0, {step, kNoLayer});
  }

  Capture capture;
};

/// A coordinator that hands two layers over to its GPU, in two submissions, and then waits; a second one runs by itself.
///
///   engine  step 1000…9000: Add 1100…1200, o_proj 1200…1400, Add 1400…1500, sampling 5000…8500 (waits 5100…8000)
///   GPU     Add and o_proj side by side 2000…4000, Add 4000…4500 and 6000…7000, a copy 7000…7200
inline SmallCapture device_capture() {
  SmallCapture small(1, 10'000);
  small.capture.info.model.operators = {
      {.zone = Zone::kOProj, .flop = {.per_row = 160}, .bytes = {.fixed = 300}, .inputs = {}, .outputs = {}},
      {.zone = Zone::kAdd, .bytes = {.fixed = 100}, .inputs = {}, .outputs = {}}};
  small.step(7, Phase::kDecode, 1000, 9000, 1, 1);
  small.span(0, Zone::kAdd, 1100, 1200, 1, 0, {7, 0}).span(0, Zone::kOProj, 1200, 1400, 1, 0, {7, 0});
  small.span(0, Zone::kAdd, 1400, 1500, 1, 0, {7, 1});
  small.span(0, Zone::kSample, 5000, 8500, 1, 0, {7, kNoLayer}).span(0, Zone::kWaitDevice, 5100, 8000, 0, 0, {7, kNoLayer});
  small.counted(0, Zone::kDeviceDispatches, 1500, 3, 7).counted(0, Zone::kDeviceBarriers, 1500, 1, 7);
  small.counted(0, Zone::kDeviceDispatches, 5050, 2, 7).counted(0, Zone::kDeviceBarriers, 5050, 1, 7);
  small.ran(0, Zone::kAdd, 2000, 4000, 1, {7, 0}).ran(0, Zone::kOProj, 2000, 4000, 1, {7, 0});
  small.ran(0, Zone::kAdd, 4000, 4500, 1, {7, 1}).ran(0, Zone::kAdd, 6000, 7000, 1, {7, 1}, true);
  small.ran(0, Zone::kDeviceCopy, 7000, 7200, 64, {7, kNoLayer});
  return small;
}

inline std::size_t column(const Table& table, const std::string& name) {
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].name == name) return c;
  }
  ADD_FAILURE() << "table " << table.id << " has no column " << name;
  return 0;
}

inline const Table::Cell& cell(const Table& table, std::size_t row, const std::string& name) {
  return table.rows.at(row).at(column(table, name));
}
inline double number(const Table& table, std::size_t row, const std::string& name) {
  const Table::Cell& value = cell(table, row, name);
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  ADD_FAILURE() << table.id << "[" << row << "]." << name << " is no number";
  return NAN;
}
inline std::string text(const Table& table, std::size_t row, const std::string& name) {
  const auto* value = std::get_if<std::string>(&cell(table, row, name));
  return value == nullptr ? "" : *value;
}
inline bool is_empty(const Table& table, std::size_t row, const std::string& name) {
  return std::holds_alternative<std::monostate>(cell(table, row, name));
}
/// A cell of microseconds as whole nanoseconds.
inline int64_t ns(const Table& table, std::size_t row, const std::string& name) {
  return std::llround(number(table, row, name) * 1e3);
}

/// The row whose named cells have these texts or numbers.
inline std::size_t row_with(const Table& table, const std::vector<std::pair<std::string, Table::Cell>>& wanted) {
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    bool is_it = true;
    for (const auto& [name, value] : wanted) is_it = is_it && cell(table, r, name) == value;
    if (is_it) return r;
  }
  ADD_FAILURE() << "table " << table.id << " has no such row";
  return 0;
}

}  // namespace ferry::test
