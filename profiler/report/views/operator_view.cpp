#include <algorithm>
#include <array>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

struct OperatorCost {
  double flop = 0, bytes = 0;
};

struct OperatorTime {
  int64_t count = 0, total = 0, min = 0, max = 0;  // ns
  OperatorCost cost;
  bool is_on_device = false;

  void add(int64_t ns) {
    min = count == 0 ? ns : std::min(min, ns);
    max = std::max(max, ns);
    total += ns;
    ++count;
  }
};

/// Work of threads and devices: operators and what the host does. A pool thread's share is its operator's already, and what a
/// thread hands over is the device's.
bool is_operator(const Slice& slice) {
  const ZoneKind kind = zone_info(slice.zone).kind;
  return (kind == ZoneKind::kCompute || kind == ZoneKind::kHost) && slice.zone != Zone::kPoolTask && !slice.is_handed_over;
}

/// The own time of the operator whose first slice is `first`: of a device's with those that continue it.
int64_t own_ns(const Timeline& timeline, std::size_t first) {
  const Slice& slice = timeline.slices[first];
  int64_t ns = slice.self_ns;
  if (timeline.lanes[static_cast<std::size_t>(slice.lane)].kind != Lane::Kind::kDevice) return ns;
  for (std::size_t i = first + 1; i < timeline.slices.size() && timeline.slices[i].lane == slice.lane; ++i) {
    const Slice& next = timeline.slices[i];
    if (next.zone != slice.zone) continue;
    if (!next.is_continued) break;
    ns += next.self_ns;
  }
  return ns;
}

std::vector<std::array<OperatorTime, kNumZones>> operator_times(const ReportInput& input) {
  std::vector<std::array<OperatorTime, kNumZones>> ranks(input.capture.ranks.size());
  const StepIndex index(input.timeline);
  for (std::size_t i = 0; i < input.timeline.slices.size(); ++i) {
    const Slice& slice = input.timeline.slices[i];
    if (!is_operator(slice)) continue;
    const Lane& lane = input.timeline.lanes[static_cast<std::size_t>(slice.lane)];
    OperatorTime& time = ranks[static_cast<std::size_t>(lane.rank)][static_cast<std::size_t>(slice.zone)];
    if (slice.is_continued && time.count > 0) continue;  // else its begin lies before the capture
    time.is_on_device = lane.kind == Lane::Kind::kDevice;
    time.add(own_ns(input.timeline, i));
    const int32_t step = index.find(slice.step);
    const int64_t sequences = step < 0 ? 1 : input.timeline.steps[static_cast<std::size_t>(step)].num_sequences;
    const OperatorFacts* facts = find_operator(input.capture.info.model.operators, slice.zone);
    if (facts == nullptr) continue;
    const SpanCounts counts = facts->counts(slice.a, slice.b, sequences);
    time.cost.flop += facts->flop.of(counts);
    time.cost.bytes += facts->bytes.of(counts);
  }
  return ranks;
}

struct Roofs {
  double read_bytes_per_s = 0, flops_per_s = 0;  // 0: not measured
};

/// Where the operator ran. They are measured where the coordinator computes: on its device, if it has one, which is not known
/// to be like one of another name.
Roofs roofs_of(const Capture& capture, std::size_t rank, const OperatorTime& time) {
  const std::string& measured_on = capture.ranks.front().device.name;
  const std::string ran_on = time.is_on_device ? capture.ranks[rank].device.name : "";
  if (ran_on != measured_on) return {};
  return {capture.info.read_bytes_per_s, capture.info.flops_per_s};
}

/// Operations a second that the roofs allow at this intensity; 0 if they were not measured or the operator has none.
double roof(const Roofs& roofs, const OperatorCost& cost) {
  if (roofs.flops_per_s <= 0 || roofs.read_bytes_per_s <= 0 || cost.bytes <= 0) return 0;
  return std::min(roofs.flops_per_s, cost.flop / cost.bytes * roofs.read_bytes_per_s);
}

/// Achieved / bound: of operations, or of bytes for what only moves them and where only their roof is known.
Table::Cell efficiency(const Roofs& roofs, const OperatorCost& cost, double total_ns) {
  if (total_ns <= 0 || cost.bytes <= 0) return std::monostate{};
  if (cost.flop <= 0 || roofs.flops_per_s <= 0) return ratio_cell(cost.bytes * 1e9 / total_ns, roofs.read_bytes_per_s);
  return ratio_cell(cost.flop * 1e9 / total_ns, roof(roofs, cost));
}

const char* kind_name(Zone zone, const OperatorTime& time) {
  if (time.is_on_device) return "device";
  return zone_info(zone).kind == ZoneKind::kCompute ? "compute" : "host";
}

Table::Cell known(double value) { return cell_if(value > 0, value); }

Table::Cell rate(double amount, double ns) { return cell_if(amount > 0 && ns > 0, ns > 0 ? amount / ns : 0); }

}  // namespace

Table make_operator_view(const ReportInput& input) {
  Table table{
      .id = "operator",
      .title = "Operators",
      .note =
          "Own time of every operator, what is nested in it and waits excluded. FLOP and bytes are what its shapes need at "
          "least. bound = min(peak, intensity x bandwidth) with the roofs measured on the coordinator's threads; "
          "efficiency = achieved / bound, of bytes where nothing is multiplied; above 1 where operands stay in caches." +
          device_note(input,
                      "Kind device: by the GPU's timestamps, what ran side by side divided by the bytes that each moves at "
                      "least; its roofs are those of the coordinator's GPU."),
      .columns = {{"operator"},
                  {"rank"},
                  {"kind"},
                  {"count"},
                  {"total_us", 3},
                  {"min_us", 3},
                  {"avg_us", 3},
                  {"max_us", 3},
                  {"share", 4},
                  {"flop"},
                  {"bytes"},
                  {"gflop_per_s", 2},
                  {"gb_per_s", 2},
                  {"intensity_flop_per_byte", 3},
                  {"bound_gflop_per_s", 2},
                  {"efficiency", 3}}};
  const auto ranks = operator_times(input);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    int64_t rank_ns = 0;
    std::vector<int> order;
    for (int z = 0; z < kNumZones; ++z) {
      if (ranks[r][static_cast<std::size_t>(z)].count == 0) continue;
      rank_ns += ranks[r][static_cast<std::size_t>(z)].total;
      order.push_back(z);
    }
    const auto total_of = [&](int z) { return ranks[r][static_cast<std::size_t>(z)].total; };
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return total_of(x) > total_of(y); });
    for (const int z : order) {
      const OperatorTime& time = ranks[r][static_cast<std::size_t>(z)];
      const ZoneInfo& zone = zone_info(static_cast<Zone>(z));
      const double total_ns = static_cast<double>(time.total);
      const Roofs roofs = roofs_of(input.capture, r, time);
      const double bound = roof(roofs, time.cost);
      table.rows.push_back({zone.name, static_cast<int64_t>(r), kind_name(static_cast<Zone>(z), time), time.count,
                            us_cell(time.total), us_cell(time.min), to_us(time.total) / static_cast<double>(time.count),
                            us_cell(time.max), ratio_cell(total_ns, static_cast<double>(rank_ns)), known(time.cost.flop),
                            known(time.cost.bytes), rate(time.cost.flop, total_ns), rate(time.cost.bytes, total_ns),
                            known(time.cost.bytes > 0 ? time.cost.flop / time.cost.bytes : 0), known(bound / 1e9),
                            efficiency(roofs, time.cost, total_ns)});
    }
  }
  return table;
}

}  // namespace ferry
