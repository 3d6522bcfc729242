#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan_types.h"

// Machines as text: what `ferry plan --measure --save FILE` writes and --hosts reads.
//
//   {"format": "ferry-hosts", "version": 3, "hosts": [
//     {"name": "a", "count": 4, "role": "any", "cores": 16, "ram_bytes": 6.4e10, "read_bytes_per_s": 1.5e11,
//      "load_bytes_per_s": 1e9, "flops_per_s": 2e13, "code_flops_per_s": 4e13, "link_s": 4e-5, "message_s": 1e-5,
//      "link_bytes_per_s": 1.25e9, "handling": [[1024, 3e-5]], "exchange": [{"workers": 1, "curve": [[1024, 2e-5]]}],
//      "measured": null}]}
//
// "role" is "any", "coordinators" or "workers". "handling" and "exchange" are seconds over bytes (plan_types.h); both may be
// empty.
// "measured" holds the costs of one model's layers on that host, or null: then they follow from the roofs.

namespace ferry {

inline constexpr int64_t kHostsMax = 256;  // of the list; each stands for `count` machines

/// Costs of a model as they were measured on a host.
struct MeasuredCosts {
  std::string shape;  // PlanModel::shape
  int64_t num_layers = 0;
  RankCosts alone;
  std::vector<SharedCosts> together;
};

struct HostEntry {
  PlanHost host;                        // without costs
  std::vector<MeasuredCosts> measured;  // none or one
};

std::string write_hosts(const std::vector<HostEntry>& hosts);

/// `name` is for errors. Throws Error{kInvalidArgument} for what is not of this form and version, a number that makes no sense,
/// and what is beyond the bounds.
std::vector<HostEntry> read_hosts(std::string_view text, const std::string& name);

/// The host with the measured costs, of as many layers as the model has, if they are of its shape; else without.
PlanHost host_for(const HostEntry& entry, const PlanModel& model);

}  // namespace ferry
