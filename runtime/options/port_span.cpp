#include "runtime/options/port_span.h"

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/net/host_port.h"
#include "runtime/net/hosts.h"

namespace ferry {
namespace {

constexpr int kMaxPort = 65535;

/// Why there are more ports than one.
std::string reason_of(const PortSpan& span) {
  return span.coordinators == 1 ? "" : " with --coordinators " + std::to_string(span.coordinators);
}

/// "" or what is wrong with one span.
std::string check_span(const PortSpan& span) {
  int first = 0;
  try {
    first = parse_host_port(span.option, span.address).port;
  } catch (const Error& error) {
    return error.what();
  }
  const int last = kMaxPort - span.more;
  if (first <= last) return "";
  return span.option + ": '" + span.address + "'" + reason_of(span) + ", which takes " + std::to_string(1 + span.more) +
         " ports from that one on; allowed: 1 to " + std::to_string(last) + ", or 0";
}

/// Ports that are next to each other on one host.
struct PortRun {
  std::string host;
  int first = 0, last = 0;
};

/// The two runs of a span: that of its first port, and that of the others, which may hold none.
std::vector<PortRun> runs_of(const PortSpan& span) {
  const HostPort place = parse_host_port(span.option, span.address);
  if (place.port == 0) return {};
  std::vector<PortRun> runs{{place.host, place.port, place.port}};
  if (span.more > 0) runs.push_back({span.more_at.empty() ? place.host : span.more_at, place.port + 1, place.port + span.more});
  return runs;
}

bool overlap(const PortSpan& a, const PortSpan& b) {
  const std::vector<PortRun> ours = runs_of(a), theirs = runs_of(b);
  return std::ranges::any_of(ours, [&](const PortRun& x) {
    return std::ranges::any_of(theirs, [&](const PortRun& y) {
      return x.first <= y.last && y.first <= x.last && do_listeners_collide(x.host, y.host);
    });
  });
}

/// "--http 127.0.0.1:2400 (ports 2400 to 2402)".
std::string describe(const PortSpan& span) {
  const int first = parse_host_port(span.option, span.address).port;
  const std::string ports = span.more == 0 ? "port " + std::to_string(first)
                                           : "ports " + std::to_string(first) + " to " + std::to_string(first + span.more);
  return span.option + " " + span.address + " (" + ports + ")";
}

}  // namespace

std::string check_ports(std::span<const PortSpan> spans) {
  for (const PortSpan& span : spans) {
    if (std::string wrong = check_span(span); !wrong.empty()) return wrong;
  }
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!overlap(spans[j], spans[i])) continue;
      return describe(spans[j]) + " and " + describe(spans[i]) + reason_of(spans[i]) + " overlap; allowed: no port twice";
    }
  }
  return "";
}

}  // namespace ferry
