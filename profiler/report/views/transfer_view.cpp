#include <algorithm>
#include <map>
#include <tuple>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// One end's part of a message: what it waited for the other end to join in.
int64_t wait_ns(int64_t begin_ns, int64_t end_ns, int64_t other_begin_ns, double bound_ns) {
  const int64_t wait = other_begin_ns - begin_ns;
  if (static_cast<double>(wait) <= bound_ns || other_begin_ns >= end_ns) return 0;  // or it was done before the other came
  return wait;
}

/// From the moment both ends were there to the completion that the receiver sees.
int64_t flight_ns(const Message& message) {
  const int64_t begin_ns = std::max(message.send_begin_ns, message.receive_begin_ns);
  return std::max<int64_t>(message.receive_end_ns - begin_ns, 0);
}

struct TransferSums {
  int64_t count = 0, bytes = 0, elapse = 0, wait = 0;
  double bound_ns = 0;
};

using TransferKey = std::tuple<Zone, int32_t, int32_t>;  // operator, layer, rank

std::map<TransferKey, TransferSums> transfer_sums(const ReportInput& input) {
  std::map<TransferKey, TransferSums> sums;
  const Timeline& timeline = input.timeline;
  const auto num_ranks = static_cast<int32_t>(input.capture.ranks.size());
  for (const Slice& slice : timeline.slices) {
    if (kind_of(slice) != ZoneKind::kTransfer) continue;
    const int32_t rank = timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
    TransferSums& sum = sums[{slice.zone, slice.layer, rank}];
    ++sum.count;
    sum.bytes += slice.a;
    sum.elapse += slice.duration_ns();
    const auto peer = static_cast<int32_t>(slice.b);
    if (peer >= 0 && peer < num_ranks) sum.bound_ns = std::max(sum.bound_ns, clock_bound_ns(input, rank, peer));
  }
  for (const Message& m : timeline.messages) {
    const double bound_ns = clock_bound_ns(input, m.source, m.target);
    const Zone send = m.is_dispatch ? Zone::kDispatchSend : Zone::kCombineSend;
    const Zone receive = m.is_dispatch ? Zone::kDispatchReceive : Zone::kCombineReceive;
    sums[{send, m.layer, m.source}].wait += wait_ns(m.send_begin_ns, m.send_end_ns, m.receive_begin_ns, bound_ns);
    sums[{receive, m.layer, m.target}].wait += wait_ns(m.receive_begin_ns, m.receive_end_ns, m.send_begin_ns, bound_ns);
  }
  return sums;
}

}  // namespace

Table make_transfer_view(const ReportInput& input) {
  Table table{.id = "transfer",
              .title = "Transfers",
              .note =
                  "Sums over the capture; elapse is from a message's post to the completion that its rank sees. wait: the "
                  "other end had not joined in yet; transit: the rest. algbw = bytes / elapse, busbw = algbw (n - 1) / n, "
                  "link = bytes / transit. " +
                  clock_note(input),
              .columns = {{"operator"},
                          {"layer"},
                          {"rank"},
                          {"count"},
                          {"bytes"},
                          {"elapse_us", 3},
                          {"wait_us", 3},
                          {"transit_us", 3},
                          {"us_per_message", 3},
                          {"algbw_gb_per_s", 3},
                          {"busbw_gb_per_s", 3},
                          {"link_gb_per_s", 3},
                          {"clock_bound_us", 3}}};
  const auto num_ranks = static_cast<double>(input.capture.ranks.size());
  for (const auto& [key, sum] : transfer_sums(input)) {
    const auto& [zone, layer, rank] = key;
    const auto bytes = static_cast<double>(sum.bytes), elapse = static_cast<double>(sum.elapse);
    const int64_t transit = sum.elapse - sum.wait;
    table.rows.push_back({zone_info(zone).name, static_cast<int64_t>(layer), static_cast<int64_t>(rank), sum.count, sum.bytes,
                          us_cell(sum.elapse), us_cell(sum.wait), us_cell(transit),
                          ratio_cell(to_us(sum.elapse), static_cast<double>(sum.count)), ratio_cell(bytes, elapse),
                          ratio_cell(bytes * (num_ranks - 1) / num_ranks, elapse),
                          ratio_cell(bytes, static_cast<double>(transit)), sum.bound_ns / 1e3});
  }
  return table;
}

Table make_traffic_view(const ReportInput& input) {
  Table table{.id = "traffic",
              .title = "Traffic",
              .note =
                  "Counted at the sender. A source's bytes are the sum of its send operators in the transfer table. rows: "
                  "of experts; a dispatch carries a token once, however many rows of the target it is. flight: from both ends "
                  "being there to the receiver's completion. " +
                  clock_note(input),
              .columns = {{"source"},
                          {"target"},
                          {"bytes"},
                          {"messages"},
                          {"rows"},
                          {"bytes_per_message", 1},
                          {"send_us", 3},
                          {"flight_us", 3},
                          {"gb_per_s", 3},
                          {"clock_bound_us", 3}}};
  struct Link {
    int64_t bytes = 0, messages = 0, rows = 0, send = 0, flight = 0, paired_bytes = 0;
  };
  std::map<std::pair<int32_t, int32_t>, Link> links;
  const Timeline& timeline = input.timeline;
  const auto num_ranks = static_cast<int32_t>(input.capture.ranks.size());
  for (const Slice& slice : timeline.slices) {
    const int32_t rank = timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
    const std::pair to_peer{rank, static_cast<int32_t>(slice.b)};
    if (slice.zone == Zone::kDispatchSend || slice.zone == Zone::kCombineSend) {
      Link& link = links[to_peer];
      link.bytes += slice.a;
      ++link.messages;
      link.send += slice.duration_ns();
    } else if (to_peer.second != rank && (slice.zone == Zone::kDispatch || slice.zone == Zone::kExperts)) {
      links[to_peer].rows += slice.a;
    }
  }
  for (const Message& message : timeline.messages) {
    Link& link = links[{message.source, message.target}];
    link.flight += flight_ns(message);
    link.paired_bytes += message.bytes;
  }
  for (const auto& [ends, link] : links) {
    const auto [source, target] = ends;
    Table::Cell rows, bound;
    if (link.rows > 0) rows = link.rows;
    if (target < num_ranks) bound = clock_bound_ns(input, source, target) / 1e3;
    table.rows.push_back({static_cast<int64_t>(source), static_cast<int64_t>(target), link.bytes, link.messages, rows,
                          ratio_cell(static_cast<double>(link.bytes), static_cast<double>(link.messages)), us_cell(link.send),
                          us_cell(link.flight),
                          ratio_cell(static_cast<double>(link.paired_bytes), static_cast<double>(link.flight)), bound});
  }
  return table;
}

}  // namespace ferry
