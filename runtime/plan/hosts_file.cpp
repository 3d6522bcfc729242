#include "runtime/plan/hosts_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kHostsFormat = "ferry-hosts";
constexpr int64_t kHostsVersion = 3;
constexpr int64_t kCurvePointsMax = 64;
constexpr int64_t kSharedMax = 16;  // numbers of workers that costs are given for
constexpr JsonLimits kHostsLimits{
    .depth = 10, .bytes = 1 << 22, .values = 1 << 19, .members = 32, .duplicates = DuplicateKeys::kRefuse};

[[noreturn]] void refuse_value(const std::string& where, const json& value, const std::string& allowed) {
  throw_invalid(where + " is " + shown(value) + "; allowed: " + allowed);
}

void require_keys(const json& object, std::initializer_list<const char*> keys, const std::string& where) {
  if (!object.is_object()) refuse_value(where, object, "an object");
  for (const char* key : keys)
    if (!object.contains(key)) throw_invalid(where + ": no " + key);
  for (const auto& item : object.items()) {
    bool is_known = false;
    for (const char* key : keys) is_known = is_known || item.key() == key;
    if (!is_known) throw_invalid(where + ": unknown " + json(item.key()).dump());
  }
}

double real_of(const json& object, const char* key, const std::string& where, double least) {
  constexpr double kMost = 1e18;
  const json& value = object[key];
  const bool fits = value.is_number() && value.get<double>() >= least && value.get<double>() <= kMost;
  if (!fits) refuse_value(where + ": " + key, value, least > 0 ? "a number above 0" : "a number from 0 on");
  return value.get<double>();
}

int64_t whole_of(const json& object, const char* key, const std::string& where, int64_t most) {
  const json& value = object[key];
  if (!value.is_number_integer() || value < 1 || value > most)
    refuse_value(where + ": " + key, value, "a whole number from 1 to " + std::to_string(most));
  return value.get<int64_t>();
}

std::string name_of(const json& object, const char* key, const std::string& where) {
  constexpr std::size_t kMost = 1024;
  const json& value = object[key];
  if (!value.is_string() || value.get_ref<const std::string&>().size() > kMost)
    refuse_value(where + ": " + key, value, "a name");
  return value.get<std::string>();
}

ordered_json curve_json(const Curve& curve) {
  ordered_json points = ordered_json::array();
  for (const Curve::Point& p : curve.points) points.push_back({p.size, p.seconds});
  return points;
}

Curve read_curve(const json& object, const char* key, const std::string& where) {
  const json& list = object[key];
  const std::string here = where + ": " + key;
  if (!list.is_array() || std::ssize(list) > kCurvePointsMax)
    refuse_value(here, list, "a list of up to " + std::to_string(kCurvePointsMax) + " pairs");
  Curve curve;
  for (const json& pair : list) {
    const bool is_pair = pair.is_array() && pair.size() == 2 && pair[0].is_number() && pair[1].is_number();
    const double size = is_pair ? pair[0].get<double>() : -1, seconds = is_pair ? pair[1].get<double>() : -1;
    const double before = curve.points.empty() ? 0 : curve.points.back().size;
    if (!(size > before && size <= 1e12 && seconds >= 0 && seconds <= 1e9))
      refuse_value(here, pair, "[rows or bytes, seconds], the first ascending from above 0, seconds from 0 on");
    curve.points.push_back({size, seconds});
  }
  return curve;
}

ordered_json costs_json(const RankCosts& c) {
  return {{"own_decode", curve_json(c.own_decode)},
          {"own_prefill", curve_json(c.own_prefill)},
          {"shared_decode", curve_json(c.shared_decode)},
          {"shared_prefill", curve_json(c.shared_prefill)},
          {"head", curve_json(c.head)},
          {"keys_decode", curve_json(c.keys_decode)},
          {"key_prefill", c.key_prefill},
          {"expert_call", c.expert_call},
          {"expert", curve_json(c.expert)},
          {"exchange_decode", curve_json(c.exchange_decode)},
          {"exchange_prefill", curve_json(c.exchange_prefill)}};
}

RankCosts read_costs(const json& object, const std::string& where) {
  require_keys(object,
               {"own_decode", "own_prefill", "shared_decode", "shared_prefill", "head", "keys_decode", "key_prefill",
                "expert_call", "expert", "exchange_decode", "exchange_prefill"},
               where);
  return {.own_decode = read_curve(object, "own_decode", where),
          .own_prefill = read_curve(object, "own_prefill", where),
          .shared_decode = read_curve(object, "shared_decode", where),
          .shared_prefill = read_curve(object, "shared_prefill", where),
          .head = read_curve(object, "head", where),
          .keys_decode = read_curve(object, "keys_decode", where),
          .key_prefill = real_of(object, "key_prefill", where, 0),
          .expert_call = real_of(object, "expert_call", where, 0),
          .expert = read_curve(object, "expert", where),
          .exchange_decode = read_curve(object, "exchange_decode", where),
          .exchange_prefill = read_curve(object, "exchange_prefill", where)};
}

/// A list by numbers of workers, which ascend; each entry is what `read` makes of the object and its place.
template <class Entry, class Read>
std::vector<Entry> read_by_workers(const json& list, const std::string& where, Read&& read) {
  if (!list.is_array() || std::ssize(list) > kSharedMax)
    refuse_value(where, list, "a list of up to " + std::to_string(kSharedMax) + " entries");
  std::vector<Entry> entries;
  for (const json& object : list) {
    const std::string here = where + "[" + std::to_string(entries.size()) + "]";
    entries.push_back(read(object, here));
    if (entries.size() > 1 && entries.back().workers <= entries[entries.size() - 2].workers)
      refuse_value(here + ": workers", object["workers"], "more than in the entry before");
  }
  return entries;
}

std::vector<SharedCosts> read_together(const json& list, const std::string& where) {
  return read_by_workers<SharedCosts>(list, where, [](const json& object, const std::string& here) {
    require_keys(object, {"workers", "costs"}, here);
    return SharedCosts{.workers = whole_of(object, "workers", here, kMaxWorkers),
                       .costs = read_costs(object["costs"], here + ": costs")};
  });
}

std::vector<HostExchange> read_exchange(const json& list, const std::string& where) {
  return read_by_workers<HostExchange>(list, where, [](const json& object, const std::string& here) {
    require_keys(object, {"workers", "curve"}, here);
    return HostExchange{.workers = whole_of(object, "workers", here, kMaxWorkers), .curve = read_curve(object, "curve", here)};
  });
}

constexpr std::array<std::pair<HostRole, const char*>, 3> kRoles{
    {{HostRole::kAny, "any"}, {HostRole::kCoordinators, "coordinators"}, {HostRole::kWorkers, "workers"}}};

HostRole read_role(const json& value, const std::string& where) {
  for (const auto& [role, name] : kRoles)
    if (value == name) return role;
  refuse_value(where + ": role", value, "any, coordinators or workers");
}

const char* role_name(HostRole role) {
  return std::ranges::find(kRoles, role, [](const auto& entry) { return entry.first; })->second;
}

HostEntry read_host(const json& object, const std::string& where) {
  constexpr double kAboveZero = 1e-12;
  require_keys(object,
               {"name", "count", "role", "cores", "ram_bytes", "read_bytes_per_s", "load_bytes_per_s", "flops_per_s",
                "code_flops_per_s", "link_s", "message_s", "link_bytes_per_s", "handling", "exchange", "measured"},
               where);
  HostEntry entry;
  entry.host = {.name = name_of(object, "name", where),
                .count = whole_of(object, "count", where, 4096),
                .role = read_role(object["role"], where),
                .cores = whole_of(object, "cores", where, 4096),
                .ram_bytes = real_of(object, "ram_bytes", where, 0),
                .read_bytes_per_s = real_of(object, "read_bytes_per_s", where, kAboveZero),
                .load_bytes_per_s = real_of(object, "load_bytes_per_s", where, kAboveZero),
                .flops_per_s = real_of(object, "flops_per_s", where, kAboveZero),
                .code_flops_per_s = real_of(object, "code_flops_per_s", where, kAboveZero),
                .link_s = real_of(object, "link_s", where, 0),
                .message_s = real_of(object, "message_s", where, 0),
                .link_bytes_per_s = real_of(object, "link_bytes_per_s", where, kAboveZero),
                .handling = read_curve(object, "handling", where),
                .exchange = read_exchange(object["exchange"], where + ": exchange")};
  const json& measured = object["measured"];
  if (measured.is_null()) return entry;
  const std::string here = where + ": measured";
  require_keys(measured, {"shape", "layers", "alone", "together"}, here);
  entry.measured.push_back({.shape = name_of(measured, "shape", here),
                            .num_layers = whole_of(measured, "layers", here, 4096),
                            .alone = read_costs(measured["alone"], here + ": alone"),
                            .together = read_together(measured["together"], here + ": together")});
  return entry;
}

/// Costs of all layers together, for another number of them.
RankCosts of_layers(const RankCosts& costs, double factor) {
  RankCosts c = costs;
  for (Curve* curve : {&c.own_decode, &c.own_prefill, &c.shared_decode, &c.shared_prefill, &c.keys_decode})
    *curve = curve->times(factor);
  c.key_prefill *= factor;
  return c;
}

}  // namespace

std::string write_hosts(const std::vector<HostEntry>& hosts) {
  ordered_json list = ordered_json::array();
  for (const HostEntry& entry : hosts) {
    const PlanHost& h = entry.host;
    list.push_back({{"name", h.name},
                    {"count", h.count},
                    {"role", role_name(h.role)},
                    {"cores", h.cores},
                    {"ram_bytes", h.ram_bytes},
                    {"read_bytes_per_s", h.read_bytes_per_s},
                    {"load_bytes_per_s", h.load_bytes_per_s},
                    {"flops_per_s", h.flops_per_s},
                    {"code_flops_per_s", h.code_flops_per_s},
                    {"link_s", h.link_s},
                    {"message_s", h.message_s},
                    {"link_bytes_per_s", h.link_bytes_per_s},
                    {"handling", curve_json(h.handling)},
                    {"exchange", ordered_json::array()},
                    {"measured", nullptr}});
    for (const HostExchange& x : h.exchange)
      list.back()["exchange"].push_back({{"workers", x.workers}, {"curve", curve_json(x.curve)}});
    if (entry.measured.empty()) continue;
    const MeasuredCosts& m = entry.measured.front();
    ordered_json together = ordered_json::array();
    for (const SharedCosts& shared : m.together)
      together.push_back({{"workers", shared.workers}, {"costs", costs_json(shared.costs)}});
    list.back()["measured"] = {
        {"shape", m.shape}, {"layers", m.num_layers}, {"alone", costs_json(m.alone)}, {"together", std::move(together)}};
  }
  const ordered_json object{{"format", kHostsFormat}, {"version", kHostsVersion}, {"hosts", list}};
  return object.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::vector<HostEntry> read_hosts(std::string_view text, const std::string& name) {
  const json object = parse_json(text, name, kHostsLimits);
  require_keys(object, {"format", "version", "hosts"}, name);
  if (object["format"] != kHostsFormat) refuse_value(name + ": format", object["format"], kHostsFormat);
  if (object["version"] != kHostsVersion)
    refuse_value(name + ": version", object["version"], std::to_string(kHostsVersion) + ", measured anew");
  const json& list = object["hosts"];
  if (!list.is_array() || list.empty() || std::ssize(list) > kHostsMax)
    refuse_value(name + ": hosts", list, "a list of 1 to " + std::to_string(kHostsMax));
  std::vector<HostEntry> hosts;
  for (const json& host : list) hosts.push_back(read_host(host, name + ": hosts[" + std::to_string(hosts.size()) + "]"));
  return hosts;
}

PlanHost host_for(const HostEntry& entry, const PlanModel& model) {
  PlanHost host = entry.host;
  if (entry.measured.empty() || entry.measured.front().shape != model.shape) return host;
  const MeasuredCosts& m = entry.measured.front();
  const double factor = static_cast<double>(model.num_layers) / static_cast<double>(m.num_layers);
  host.is_measured = true;
  host.alone = of_layers(m.alone, factor);
  for (const SharedCosts& shared : m.together)
    host.together.push_back({.workers = shared.workers, .costs = of_layers(shared.costs, factor)});
  return host;
}

}  // namespace ferry
