#include "runtime/cluster/handshake.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ferry {
namespace {

constexpr uint32_t kMagic = 0x59525247;
constexpr uint32_t kVersion = 2;
constexpr uint32_t kMaxStrings = 256;

void put(std::vector<std::byte>& bytes, std::span<const std::byte> raw) {
  for (const std::byte byte : raw) bytes.push_back(byte);  // g++ 12 is wrong about insert here
}

void put(std::vector<std::byte>& bytes, uint32_t value) { put(bytes, std::as_bytes(std::span(&value, 1))); }

void put(std::vector<std::byte>& bytes, const std::string& text) {
  put(bytes, static_cast<uint32_t>(text.size()));
  put(bytes, std::as_bytes(std::span(text)));
}

class ReportReader {
 public:
  ReportReader(std::span<const std::byte> bytes, Rank rank) : bytes_(bytes), rank_(rank) {}

  uint32_t number(const char* what, uint32_t least, uint32_t most) {
    uint32_t value = 0;
    require(bytes_.size() >= sizeof value, std::string("ends before its ") + what);
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    require(value >= least && value <= most, std::string(what) + " " + std::to_string(value) +
                                                 "; allowed: " + std::to_string(least) + " to " + std::to_string(most));
    return value;
  }
  std::string text() {
    const uint32_t size = number("text's length", 0, kMaxReportBytes);
    require(size <= bytes_.size(), "ends within a text");
    const std::string text(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return text;
  }
  void end() const { require(bytes_.empty(), "goes on behind its last text"); }
  void require(bool ok, const std::string& what) const {
    if (!ok) throw Error(ErrorCode::kInternal, "rank " + std::to_string(rank_.value) + "'s handshake: " + what);
  }

 private:
  std::span<const std::byte> bytes_;
  Rank rank_;
};

const Term& term(const HandshakeReport& report, std::size_t at) {
  static const Term kNothing{"nothing"};
  return at < report.terms.size() ? report.terms[at] : kNothing;
}

}  // namespace

std::vector<std::byte> encode_report(const HandshakeReport& report) {
  std::vector<std::byte> bytes;
  put(bytes, kMagic);
  put(bytes, kVersion);
  put(bytes, report.complaint ? 1 + static_cast<uint32_t>(report.complaint->code()) : 0);
  if (report.complaint) {
    put(bytes, 1);
    put(bytes, std::string(report.complaint->what()));
  } else {
    put(bytes, static_cast<uint32_t>(1 + report.terms.size()));
    put(bytes, report.place);
    for (const Term& line : report.terms) {
      put(bytes, line.may_differ ? 1U : 0U);
      put(bytes, line.text);
    }
  }
  if (bytes.size() > kMaxReportBytes || report.terms.size() >= kMaxStrings)
    throw_invalid("the terms of this rank have " + std::to_string(bytes.size()) + " bytes; allowed: up to " +
                  std::to_string(kMaxReportBytes));
  return bytes;
}

HandshakeReport decode_report(std::span<const std::byte> bytes, Rank rank) {
  ReportReader reader(bytes, rank);
  reader.number("mark", kMagic, kMagic);
  reader.number("version", kVersion, kVersion);
  const uint32_t status = reader.number("error code", 0, 1 + static_cast<uint32_t>(ErrorCode::kUnavailable));
  const uint32_t num_strings = reader.number("number of texts", 1, status == 0 ? kMaxStrings : 1);
  HandshakeReport report;
  if (status != 0) {
    report.complaint = Error(static_cast<ErrorCode>(status - 1), reader.text());
  } else {
    report.place = reader.text();
    for (uint32_t i = 1; i < num_strings; ++i) {
      const bool may_differ = reader.number("term's mark", 0, 1) == 1;
      report.terms.push_back({reader.text(), may_differ});
    }
  }
  reader.end();
  return report;
}

namespace {

/// The report, or that it cannot be sent: the others must hear of it rather than wait.
std::vector<std::byte> encode_own(const HandshakeReport& own) {
  try {
    return encode_report(own);
  } catch (const Error& error) {
    return encode_report({.complaint = error, .terms = {}, .place = {}});
  }
}

}  // namespace

std::vector<HandshakeReport> exchange_reports(Group& group, const HandshakeReport& own, Deadline deadline) {
  const auto num_ranks = static_cast<std::size_t>(group.size());
  std::vector<std::byte> mine = encode_own(own);
  const uint64_t size = mine.size();
  std::vector<uint64_t> sizes(num_ranks);
  group.all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)), deadline);
  for (std::size_t r = 0; r < num_ranks; ++r) {
    if (sizes[r] > kMaxReportBytes)
      throw Error(ErrorCode::kInternal, "rank " + std::to_string(r) + "'s handshake has " + std::to_string(sizes[r]) +
                                            " bytes; allowed: up to " + std::to_string(kMaxReportBytes));
  }
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());
  mine.resize(largest);
  std::vector<std::byte> all(largest * num_ranks);
  group.all_gather(mine, all, deadline);
  std::vector<HandshakeReport> reports;
  for (std::size_t r = 0; r < num_ranks; ++r)
    reports.push_back(decode_report(std::span(all).subspan(r * largest, sizes[r]), Rank{static_cast<int32_t>(r)}));
  return reports;
}

namespace {

/// Where a rank has other terms than the coordinator.
struct Difference {
  std::size_t rank;
  bool is_allowed;
  std::string text;  // "rank 1 has X, the coordinator Y"
};

/// By rank, then in the order of the terms.
std::vector<Difference> find_differences(std::span<const HandshakeReport> reports) {
  std::vector<Difference> found;
  for (std::size_t r = 1; r < reports.size(); ++r) {
    const std::size_t num_terms = std::max(reports[r].terms.size(), reports[0].terms.size());
    for (std::size_t i = 0; i < num_terms; ++i) {
      const Term &theirs = term(reports[r], i), &ours = term(reports[0], i);
      if (theirs.text == ours.text) continue;
      found.push_back({r, theirs.may_differ || ours.may_differ,
                       "rank " + std::to_string(r) + " has " + theirs.text + ", the coordinator " + ours.text});
    }
  }
  return found;
}

}  // namespace

std::optional<Error> find_disagreement(std::span<const HandshakeReport> reports) {
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const std::optional<Error>& complaint = reports[r].complaint;
    if (complaint) return Error(complaint->code(), (r == 0 ? "" : "rank " + std::to_string(r) + ": ") + complaint->what());
  }
  for (const Difference& difference : find_differences(reports)) {
    if (!difference.is_allowed)
      return Error(ErrorCode::kInvalidArgument, difference.text + "; allowed: the same on every rank");
  }
  return std::nullopt;
}

std::string describe_difference(std::span<const HandshakeReport> reports) {
  const std::vector<Difference> found = find_differences(reports);
  if (found.empty()) return "";
  std::size_t num_others = 0, last = found.front().rank;
  for (const Difference& difference : found) {
    num_others += difference.rank != last ? 1 : 0;
    last = difference.rank;
  }
  if (num_others == 0) return found.front().text;
  return found.front().text +
         (num_others == 1 ? " (1 other rank differs, too)" : " (" + std::to_string(num_others) + " other ranks differ, too)");
}

}  // namespace ferry
