#include "tests/sim/planned_faults.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/options/option_checks.h"

namespace ferry::sim {
namespace {

using Kind = PlannedFault::Kind;

constexpr const char* kDrop = "drop:";

double parse_drop(const std::string& piece) {
  const std::string text = piece.substr(std::string(kDrop).size());
  const auto percent = text.ends_with('%') ? parse_number<double>(text.substr(0, text.size() - 1)) : std::nullopt;
  if (!percent || !(*percent > 0 && *percent <= 100))
    throw_invalid("'" + piece + "' is no fault; allowed: drop:P% with 0 < P <= 100");
  return *percent / 100;
}

}  // namespace

FaultSpec parse_fault_spec(const std::string& text) {
  FaultSpec spec;
  std::string others;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string piece = text.substr(begin, end - begin);
    piece.erase(0, std::min(piece.find_first_not_of(' '), piece.size()));
    if (piece.starts_with(kDrop)) {
      spec.drop_rate = parse_drop(piece);
    } else {
      others += (others.empty() ? "" : ",") + piece;
    }
    begin = end + 1;
  }
  if (!others.empty() || spec.drop_rate == 0) spec.faults = parse_fault_plan(others);
  if (std::ranges::any_of(spec.faults, [](const PlannedFault& fault) { return fault.kind == Kind::kNan; }))
    throw_invalid("--fault: 'nan' is not simulated; allowed: kill, stop, slow, cut and drop");
  return spec;
}

PlannedFaults::PlannedFaults(FaultyNetwork& network, VirtualTime& time, std::vector<PlannedFault> faults) : network_(network) {
  for (PlannedFault& fault : faults) {
    if (fault.step) {
      by_step_.push_back(std::move(fault));
    } else {
      const auto when = fault.time.value_or(std::chrono::milliseconds(0));
      time.at(time.now() + when, [this, fault] { happen(fault); });
    }
  }
}

void PlannedFaults::begin_step(int64_t step) {
  std::erase_if(by_step_, [&](const PlannedFault& fault) {
    if (*fault.step > step) return false;
    happen(fault);
    return true;
  });
}

void PlannedFaults::happen(const PlannedFault& fault) {
  switch (fault.kind) {
    case Kind::kKill: return network_.strike(FaultKind::kKill, fault.rank);
    case Kind::kStop: return network_.strike(FaultKind::kStop, fault.rank, fault.duration);
    case Kind::kSlow: return network_.strike(FaultKind::kSlow, fault.rank, {}, fault.factor);
    case Kind::kDelay: return network_.delay_work(fault.rank, fault.duration);
    case Kind::kCut: return network_.cut_between(Rank{0}, fault.rank);
    case Kind::kNan: return;  // parse_fault_spec() takes none
  }
}

}  // namespace ferry::sim
