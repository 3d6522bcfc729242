#include "moe/routing/routing_export.h"

#include <string_view>

#include "moe/placement/load_file.h"
#include "moe/routing/routing_summary.h"
#include "runtime/base/error.h"

namespace ferry {

std::string routing_csv(const RoutingTrace& trace) {
  const ExpertLoads loads = loads_of(trace);
  std::string text = "layer,expert,rows,touched\n";
  for (int64_t l = 0; l < loads.num_layers; ++l) {
    for (int64_t e = 0; e < loads.num_experts; ++e) {
      const auto i = static_cast<std::size_t>(l * loads.num_experts + e);
      text += std::to_string(trace.shape.layers[static_cast<std::size_t>(l)]) + "," + std::to_string(e) + "," +
              std::to_string(static_cast<int64_t>(loads.rows[i])) + "," +
              std::to_string(static_cast<int64_t>(loads.touched[i])) + "\n";
    }
  }
  return text;
}

std::string routing_npy(const RoutingTrace& trace) {
  constexpr std::size_t kAlignment = 64, kPrefix = 10;  // numpy.lib.format: magic, version, length, then a padded dict
  const RoutingShape& shape = trace.shape;
  std::string header = "{'descr': '<i2', 'fortran_order': False, 'shape': (" + std::to_string(trace.num_rows()) + ", " +
                       std::to_string(shape.num_layers()) + ", " + std::to_string(shape.top_k) + "), }";
  while ((kPrefix + header.size() + 1) % kAlignment != 0) header += ' ';
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  out.reserve(out.size() + trace.ids.size() * 2);
  for (const RoutingStep& step : trace.steps) {
    for (int64_t r = 0; r < step.num_rows; ++r) {
      for (int64_t l = 0; l < shape.num_layers(); ++l) {
        for (const uint16_t id : trace.of(step, l, r)) {
          out += static_cast<char>(id & 0xff);
          out += static_cast<char>(id >> 8);
        }
      }
    }
  }
  return out;
}

std::string routing_as(const RoutingTrace& trace, const std::string& path) {
  const auto ends = [&](std::string_view ending) { return path.ends_with(ending); };
  if (ends(".csv")) return routing_csv(trace);
  if (ends(".npy")) return routing_npy(trace);
  if (ends(".json")) return write_expert_loads(loads_of(trace));
  if (!ends(".ferryrt")) throw_invalid("--out: '" + path + "'; allowed: a name that ends in .ferryrt, .csv, .npy or .json");
  const std::vector<std::byte> bytes = encode_routing_trace(trace);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace ferry
