#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "runtime/base/error.h"

namespace ferry {

/// What a rank brings to the others before they work together.
struct HandshakeReport {
  std::optional<Error> complaint;  // why it cannot take part; then there is no more
  std::vector<std::string> terms;  // what must be the same on every rank, a line each, such as "--dtype bf16"
  std::string place;               // equal on ranks that share cores; empty if nobody asks
};

/// A report on its way has at most so many bytes; terms that need more are Error{kInvalidArgument}.
constexpr std::size_t kMaxReportBytes = std::size_t{64} << 10;

/// magic u32 | version u32 | 0, or 1 + error code, u32 | number of strings u32 | strings, each u32 bytes and its text: the
/// complaint alone, or place and terms.
std::vector<std::byte> encode_report(const HandshakeReport& report);
/// Throws Error{kInternal} that names `rank` for anything else.
HandshakeReport decode_report(std::span<const std::byte> bytes, Rank rank);

/// Every rank's report, by rank; that of a rank whose terms are too long is a complaint about them. Collective; waits until
/// `deadline` for the slowest, and the Error names the rank.
std::vector<HandshakeReport> exchange_reports(Group& group, const HandshakeReport& own, Deadline deadline);

/// Why these ranks cannot work together, if so: the first complaint, or the first of a rank's terms that is not the
/// coordinator's.
std::optional<Error> find_disagreement(std::span<const HandshakeReport> reports);

}  // namespace ferry
