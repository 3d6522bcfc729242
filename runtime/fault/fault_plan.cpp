#include "runtime/fault/fault_plan.h"

#include <cmath>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/options/option_checks.h"

namespace ferry {
namespace {

using Kind = PlannedFault::Kind;

constexpr const char* kForms =
    "kill:RANK@WHEN, stop:RANK@WHEN+SECONDSs, cut:0-RANK@WHEN, slow:RANKxFACTOR[@WHEN], slow:RANK+SECONDSs[@WHEN] or "
    "nan:RANK[@WHEN], where WHEN is step=N or SECONDSs";
constexpr int32_t kMostRank = 1 << 16;
constexpr double kMostSeconds = 1e6, kMostFactor = 1000;

[[noreturn]] void refuse_piece(std::string_view piece) {
  throw_invalid("'" + std::string(piece) + "' is no fault; allowed: " + kForms);
}

/// What stands before `mark`, which goes with it; all of it if there is no mark.
std::string_view take_until(std::string_view& text, char mark) {
  const std::size_t at = text.find(mark);
  const std::string_view taken = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return taken;
}

/// "3.5s".
std::optional<std::chrono::microseconds> parse_seconds(std::string_view text) {
  if (!text.ends_with('s')) return std::nullopt;
  const auto seconds = parse_number<double>(std::string(text.substr(0, text.size() - 1)));
  if (!seconds || !(*seconds >= 0 && *seconds <= kMostSeconds)) return std::nullopt;
  return std::chrono::microseconds(std::llround(*seconds * 1e6));
}

/// What stands behind the @.
void parse_when(std::string_view when, std::string_view piece, PlannedFault& fault) {
  constexpr std::string_view kStep = "step=";
  if (when.starts_with(kStep)) {
    fault.step = parse_number<int64_t>(std::string(when.substr(kStep.size())));
    if (!fault.step || *fault.step < 0) refuse_piece(piece);
  } else {
    fault.time = parse_seconds(when);
    if (!fault.time) refuse_piece(piece);
  }
}

Rank parse_rank(std::string_view text, std::string_view piece) {
  const auto rank = parse_number<int32_t>(std::string(text));
  if (!rank || *rank < 0 || *rank > kMostRank) refuse_piece(piece);
  return Rank{*rank};
}

/// "RANKxFACTOR" or "RANK+SECONDSs"; returns the rank.
std::string_view parse_slowness(std::string_view text, std::string_view piece, PlannedFault& fault) {
  std::string_view rest = text;
  if (text.find('+') != std::string_view::npos) {
    const std::string_view rank = take_until(rest, '+');
    const auto more = parse_seconds(rest);
    if (!more) refuse_piece(piece);
    fault.kind = Kind::kDelay;
    fault.duration = *more;
    return rank;
  }
  fault.kind = Kind::kSlow;
  const std::string_view rank = take_until(rest, 'x');
  const auto factor = parse_number<double>(std::string(rest));
  if (!factor || !(*factor >= 1 && *factor <= kMostFactor)) refuse_piece(piece);
  fault.factor = *factor;
  return rank;
}

PlannedFault parse_fault(std::string_view piece) {
  std::string_view rest = piece;
  const std::string_view name = take_until(rest, ':');
  const bool has_when = rest.find('@') != std::string_view::npos;
  std::string_view who = take_until(rest, '@'), when = rest;
  PlannedFault fault;
  if (name == "kill") {
    fault.kind = Kind::kKill;
  } else if (name == "stop") {
    fault.kind = Kind::kStop;
    when = take_until(rest, '+');
    const auto duration = parse_seconds(rest);
    if (!duration) refuse_piece(piece);
    fault.duration = *duration;
  } else if (name == "cut") {
    fault.kind = Kind::kCut;
    if (take_until(who, '-') != "0") refuse_piece(piece);
  } else if (name == "slow") {
    who = parse_slowness(who, piece, fault);
  } else if (name == "nan") {
    fault.kind = Kind::kNan;
  } else {
    refuse_piece(piece);
  }
  fault.rank = parse_rank(who, piece);
  const bool may_begin_at_once = name == "slow" || name == "nan";
  if (has_when || !may_begin_at_once) parse_when(when, piece, fault);
  const bool is_workers = fault.kind == Kind::kCut || fault.kind == Kind::kNan;
  if (is_workers && fault.rank == Rank{0}) refuse_piece(piece);
  return fault;
}

}  // namespace

std::vector<PlannedFault> parse_fault_plan(const std::string& text) {
  if (text.ends_with(',')) refuse_piece("");
  std::vector<PlannedFault> plan;
  std::string_view rest = text;
  do {
    std::string_view piece = take_until(rest, ',');
    while (piece.starts_with(' ')) piece.remove_prefix(1);
    while (piece.ends_with(' ')) piece.remove_suffix(1);
    plan.push_back(parse_fault(piece));
  } while (!rest.empty());
  return plan;
}

}  // namespace ferry
