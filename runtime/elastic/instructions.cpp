#include "runtime/elastic/instructions.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/rank_setup.h"

namespace ferry {
namespace {

constexpr const char* kPeerTimeout = "--peer-timeout";
/// A coordinator decides these for its workers. All others, such as --fault or --device, are the worker's own.
constexpr std::string_view kFollowed[] = {"--dtype",   "--token-budget", "--combine", "--quantize",
                                          "--kernels", "--matmul",       kPeerTimeout};
constexpr const char* kCannot = "the coordinator works by what this rank cannot: ";

/// Of a device's or the CPU's kernels each rank has its own.
bool is_of_kernels(const std::string& name) { return name == "--kernels" || name == "--matmul"; }

}  // namespace

std::vector<Term> make_instructions(std::vector<Term> terms, const EngineOptions& options) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.6g", options.peer_timeout_s);
  terms.push_back({std::string(kPeerTimeout) + " " + seconds});
  return terms;
}

EngineOptions follow_instructions(EngineOptions own, const std::vector<Term>& instructions) {
  std::vector<std::string> words{"--model", own.model.string()};
  for (const Term& line : instructions) {
    if (line.text == kHasMtpTerm) own.speculation = {Speculation::Source::kAuto, 0};
    const std::size_t blank = line.text.find(' ');
    const std::string name = line.text.substr(0, blank);
    if (!name.starts_with("--") || line.may_differ || blank == std::string::npos) continue;
    if (std::ranges::find(kFollowed, name) == std::end(kFollowed))
      throw_invalid(kCannot + in_quotes(line.text) + "; allowed: options that all ranks share, such as --dtype");
    if (is_of_kernels(name) && own.device.kind != DeviceChoice::Kind::kCpu) continue;
    words.push_back(name);
    words.push_back(line.text.substr(blank + 1));
  }
  std::ranges::reverse(words);  // as CLI11 takes them
  CLI::App app;
  add_engine_options(app, own);
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    throw_invalid(kCannot + std::string(error.what()));
  }
  return own;
}

std::string check_instructions(const std::vector<Term>& instructions, const std::vector<Term>& own_terms, Rank own) {
  const auto num_terms = static_cast<std::ptrdiff_t>(std::min(instructions.size(), own_terms.size()));
  const HandshakeReport theirs{.complaint = {}, .terms = {instructions.begin(), instructions.begin() + num_terms}, .place = {}};
  std::vector<HandshakeReport> reports(static_cast<std::size_t>(own.value), theirs);  // of others nothing is known
  reports.push_back({.complaint = {}, .terms = own_terms, .place = {}});
  if (const std::optional<Error> disagreement = find_disagreement(reports)) throw Error(*disagreement);
  return describe_difference(reports);
}

}  // namespace ferry
