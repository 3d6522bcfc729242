#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "runtime/base/error.h"

namespace ferry {

/// What must be the same on every rank, as a line such as "--dtype bf16".
struct Term {
  std::string text;
  bool may_differ = false;  // this rank works with others that have another one, at the price of equal bits

  friend bool operator==(const Term&, const Term&) = default;
};

/// What a rank brings to the others before they work together.
struct HandshakeReport {
  std::optional<Error> complaint;  // why it cannot take part; then there is no more
  std::vector<Term> terms;
  std::string place;  // equal on ranks that share cores, or a joining worker's host; empty if nobody asks
};

/// A report on its way has at most so many bytes; terms that need more are Error{kInvalidArgument}.
constexpr std::size_t kMaxReportBytes = std::size_t{64} << 10;

/// magic u32 | version u32 | 0, or 1 + error code, u32 | number of strings u32 | strings, each u32 bytes and its text: the
/// complaint alone, or place and terms, each of which has in front 1 if it may differ, else 0, u32.
std::vector<std::byte> encode_report(const HandshakeReport& report);
/// Throws Error{kInternal} that names `rank` for anything else.
HandshakeReport decode_report(std::span<const std::byte> bytes, Rank rank);

/// Every rank's report, by rank; that of a rank whose terms are too long is a complaint about them. Collective; waits until
/// `deadline` for the slowest, and the Error names the rank.
std::vector<HandshakeReport> exchange_reports(Group& group, const HandshakeReport& own, Deadline deadline);

/// Why these ranks cannot work together, if so: the first complaint, or the first of a rank's terms that is not the
/// coordinator's though neither of the two may differ.
std::optional<Error> find_disagreement(std::span<const HandshakeReport> reports);

/// Of ranks that can work together, who has a term that is not the coordinator's: "rank 1 has X, the coordinator Y", with the
/// number of others of whom as much could be said. Empty if nobody has.
std::string describe_difference(std::span<const HandshakeReport> reports);

}  // namespace ferry
