#include "launch/top/frame.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "launch/top/figures.h"

namespace ferry {
namespace {

constexpr int kLabelColumns = 11;
constexpr int kBarColumns = 24, kSparkColumns = 16;
constexpr const char* kGap = "   ";  // between items of a line

double as_real(int64_t value) { return static_cast<double>(value); }
double step_seconds(const LiveStatus& status) { return status.steps.seconds; }

/// What of the window was spent in steps. The sum over all steps would not do: it jumps when a long one ends, which between two
/// looks can be more than the time between them.
double recent_step_seconds(const LiveStatus::Recent& recent) {
  double seconds = 0;
  for (const LiveStatus::Phase& phase : recent.phases) seconds += phase.seconds;
  return seconds;
}

/// Lines that belong together. A table's first line is its head.
struct Section {
  int rank = 0;  // the lower, the longer it stays when there is no room
  std::vector<StyledLine> lines;
  bool is_table = false;
};

/// "label      item   item", on as many lines as the items need.
class ItemLines {
 public:
  ItemLines(const std::string& label, const Screen& screen) : screen_(screen) {
    lines_.emplace_back();
    lines_.back().add(label, Style::kStrong);
    lines_.back().pad(kLabelColumns);
  }
  void add(const std::string& text, Style style = Style::kPlain) { add_parts({{text, style}}); }
  /// Pieces that stay on one line.
  void add_parts(const std::vector<std::pair<std::string, Style>>& parts) {
    int width = 0;
    for (const auto& [text, style] : parts) width += display_width(text);
    const int gap = has_items_ ? display_width(kGap) : 0;
    if (has_items_ && lines_.back().width() + gap + width > screen_.columns) {
      lines_.emplace_back();
      lines_.back().pad(kLabelColumns);
    } else if (has_items_) {
      lines_.back().add(kGap);
    }
    for (const auto& [text, style] : parts) lines_.back().add(text, style);
    has_items_ = true;
  }
  std::vector<StyledLine> take() { return std::move(lines_); }

 private:
  const Screen& screen_;
  std::vector<StyledLine> lines_;
  bool has_items_ = false;
};

std::string repeated(const char* text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

/// "[#####.....]".
std::vector<std::pair<std::string, Style>> gauge(double share, const Screen& screen) {
  const int full = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * kBarColumns));
  const char* const block = screen.has_blocks ? "\u2588" : "#";
  const char* const rest = screen.has_blocks ? "\u2591" : ".";
  return {{repeated(block, full), Style::kFirst}, {repeated(rest, kBarColumns - full), Style::kFaint}};
}

/// The last values as a line of blocks; nothing where there are none, or no such characters.
std::string spark(const std::vector<double>& values, const Screen& screen) {
  constexpr std::array<const char*, 8> kBlocks = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                  "\u2585", "\u2586", "\u2587", "\u2588"};
  if (!screen.has_blocks || values.size() < 2) return "";
  const std::size_t first = values.size() - std::min(values.size(), std::size_t{kSparkColumns});
  const double top = *std::max_element(values.begin() + static_cast<std::ptrdiff_t>(first), values.end());
  std::string line = " ";
  for (std::size_t i = first; i < values.size(); ++i) {
    const double share = top > 0 ? std::clamp(values[i] / top, 0.0, 1.0) : 0;
    line += kBlocks[static_cast<std::size_t>(std::lround(share * (kBlocks.size() - 1)))];
  }
  return line;
}

std::string of_text(int64_t part, int64_t whole) { return whole_text(part) + " of " + whole_text(whole); }

Section title(const LiveStatus& status, const Screen& screen) {
  const LiveStatus::Server& server = status.server;
  const bool serves = server.complaint.empty();
  const std::string right = (serves ? "serving, up " : "not serving, up ") + age_text(server.uptime_s);
  StyledLine line;
  line.add("ferry top", Style::kStrong);
  const std::string ranks = server.ranks == 1 ? "one rank" : std::to_string(server.ranks) + " ranks over " + server.transport;
  line.add("  " + server.model + ", " + server.dtype + ", " + ranks);
  Section section{.rank = 0, .lines = {}};
  if (line.width() + 2 + display_width(right) > screen.columns) {
    section.lines.push_back(std::move(line));
    line = {};
  }
  line.pad(screen.columns - display_width(right));
  line.add(right, serves ? Style::kGood : Style::kBad);
  section.lines.push_back(std::move(line));
  if (!serves) {
    section.lines.emplace_back();
    section.lines.back().add(server.complaint, Style::kBad);
  }
  return section;
}

Section requests(const LiveStatus& status, const Screen& screen) {
  const LiveStatus::Requests& now = status.requests;
  ItemLines items("requests", screen);
  items.add("running " + of_text(now.running, now.max_running));
  items.add("waiting " + of_text(now.waiting, now.max_waiting), now.waiting > 0 ? Style::kThird : Style::kPlain);
  for (const auto& [state, count] : now.by_state) {
    std::string name = state;
    std::replace(name.begin(), name.end(), '_', ' ');
    if (count > 0) items.add(name + " " + whole_text(count));
  }
  int64_t ended = 0;
  for (const auto& [reason, count] : now.finished) ended += count;
  items.add("ended " + whole_text(ended));
  for (const auto& [reason, count] : now.finished) {
    if (count > 0 && reason != "stop" && reason != "length") items.add(reason + " " + whole_text(count), Style::kBad);
  }
  if (now.rejected > 0) items.add("refused " + whole_text(now.rejected), Style::kBad);
  if (now.preemptions > 0) items.add("preemptions " + whole_text(now.preemptions));
  return {.rank = 1, .lines = items.take()};
}

Section tokens(const LiveHistory& history, const Screen& screen) {
  const auto generated = [](const LiveStatus& s) { return as_real(s.tokens.generated); };
  const auto computed = [](const LiveStatus& s) { return as_real(s.tokens.computed); };
  const LiveStatus::Tokens& now = history.now().tokens;
  ItemLines items("tokens/s", screen);
  items.add_parts({{"made ", Style::kPlain},
                   {figure_text(history.rate(generated)), Style::kStrong},
                   {spark(history.line(generated), screen), Style::kFirst}});
  items.add_parts({{"prompts ", Style::kPlain},
                   {figure_text(history.rate(computed)), Style::kStrong},
                   {spark(history.line(computed), screen), Style::kSecond}});
  items.add("from the cache " + percent_text(ratio(as_real(now.cached), as_real(now.prompt))));
  return {.rank = 2, .lines = items.take()};
}

Section steps(const LiveHistory& history, const Screen& screen) {
  const auto count = [](const LiveStatus& s) { return as_real(s.steps.count); };
  const LiveStatus::Recent& recent = history.now().recent;
  ItemLines items("steps/s", screen);
  items.add_parts({{figure_text(history.rate(count)), Style::kStrong}, {spark(history.line(count), screen), Style::kFirst}});
  items.add(seconds_text(history.growth(step_seconds, count)) + " each");
  if (recent.window_s > 0) items.add("busy " + percent_text(recent_step_seconds(recent) / recent.window_s));
  // This is the number of threads that waited, on average.
  if (recent.core_wait_s > 0)
    items.add("threads without a core " + figure_text(ratio(recent.core_wait_s, recent.window_s)), Style::kBad);
  if (recent.not_running_s > 0) items.add("stopped " + percent_text(ratio(recent.not_running_s, recent.window_s)), Style::kBad);
  return {.rank = 3, .lines = items.take()};
}

/// The last seconds, by what steps were for.
Section phases(const LiveStatus& status, const Screen& screen) {
  const LiveStatus::Recent& recent = status.recent;
  ItemLines items("phases", screen);
  if (recent.window_s <= 0) {
    items.add("not recorded (--profile off)", Style::kFaint);
    return {.rank = 4, .lines = items.take()};
  }
  constexpr std::array<Style, 3> kStyles = {Style::kFirst, Style::kSecond, Style::kThird};
  constexpr std::array<const char*, 3> kMarks = {"#", "=", "+"};
  std::vector<std::pair<std::string, Style>> bar;
  int left = kBarColumns;
  for (std::size_t i = 0; i < std::min(recent.phases.size(), kStyles.size()); ++i) {
    const double share = std::clamp(recent.phases[i].seconds / recent.window_s, 0.0, 1.0);
    const int columns = std::min(left, static_cast<int>(std::lround(share * kBarColumns)));
    bar.emplace_back(repeated(screen.has_colors && screen.has_blocks ? "\u2588" : kMarks[i], columns), kStyles[i]);
    left -= columns;
  }
  bar.emplace_back(repeated(screen.has_blocks ? "\u2591" : ".", left), Style::kFaint);
  items.add_parts(bar);
  for (std::size_t i = 0; i < recent.phases.size(); ++i) {
    const LiveStatus::Phase& phase = recent.phases[i];
    if (phase.steps == 0) continue;
    const std::string each = seconds_text(ratio(phase.seconds, as_real(phase.steps)));
    items.add(phase.name + " " + percent_text(phase.seconds / recent.window_s) + ", " + each + " of " +
                  figure_text(ratio(as_real(phase.rows), as_real(phase.steps))) + " rows",
              kStyles[std::min(i, kStyles.size() - 1)]);
  }
  return {.rank = 4, .lines = items.take()};
}

std::string quantile_text(const LiveStatus::Distribution& distribution, double share) {
  const std::optional<Quantile> found = quantile(distribution, share);
  if (!found) return seconds_text(std::nullopt);
  return (found->is_bound ? "< " : "") + seconds_text(found->value);
}

Section latencies(const LiveHistory& history, const Screen& screen) {
  using Seconds = LiveStatus::Seconds;
  ItemLines items("latency", screen);
  const auto add = [&](const char* name, LiveStatus::Distribution Seconds::*which) {
    const LiveStatus::Distribution found = history.recent(which);
    items.add(name + quantile_text(found, 0.5) + ", 95 % " + quantile_text(found, 0.95));
  };
  add("first token ", &Seconds::first_token);
  add("next ", &Seconds::between_tokens);
  add("queue ", &Seconds::queue);
  add("all ", &Seconds::total);
  return {.rank = 5, .lines = items.take()};
}

Section cache(const LiveStatus& status, const Screen& screen) {
  const LiveStatus::Cache& now = status.cache;
  ItemLines items("KV cache", screen);
  const double share = ratio(as_real(now.used_blocks), as_real(now.blocks)).value_or(0);
  std::vector<std::pair<std::string, Style>> parts = gauge(share, screen);
  parts.emplace_back(" " + percent_text(share), Style::kStrong);
  items.add_parts(parts);
  items.add(of_text(now.used_blocks, now.blocks) + " blocks");
  if (now.swap_blocks > 0) items.add("swapped out " + whole_text(now.swap_blocks));
  if (now.has_prefix_cache) {
    items.add("prefixes had " + percent_text(ratio(as_real(now.cached_tokens), as_real(now.query_tokens))));
    items.add("idle blocks " + whole_text(now.idle_blocks));
    items.add("snapshots " + whole_text(now.snapshots));
  }
  return {.rank = 6, .lines = items.take()};
}

Section experts(const LiveHistory& history, const Screen& screen) {
  const LiveStatus& now = history.now();
  Section section{.rank = 7, .lines = {}};
  if (now.experts.count == 0) return section;
  ItemLines items("experts", screen);
  const auto touched = history.growth([](const LiveStatus& s) { return as_real(s.experts.touched); },
                                      [](const LiveStatus& s) { return as_real(s.experts.layers); });
  items.add("touched " + figure_text(touched) + " of " + whole_text(now.experts.count));
  if (now.server.ranks > 1) {
    items.add("balancedness " + figure_text(now.experts.balancedness));
    items.add("out " + byte_rate_text(history.rate([](const LiveStatus& s) { return as_real(s.transport.bytes_out); })));
    items.add("back " + byte_rate_text(history.rate([](const LiveStatus& s) { return as_real(s.transport.bytes_in); })));
    const auto waited = history.growth([](const LiveStatus& s) { return s.transport.wait_s; }, step_seconds);
    const auto exposed = history.growth([](const LiveStatus& s) { return s.transport.transport_s; }, step_seconds);
    items.add("waits " + percent_text(waited) + " of steps, " + percent_text(exposed) + " for the transport");
  }
  section.lines = items.take();
  return section;
}

/// One line of them, and of those that are missing.
Section workers(const LiveStatus& status, const Screen& screen) {
  const LiveStatus::Workers& now = status.workers;
  Section section{.rank = 8, .lines = {}};
  if (now.by_state.empty()) return section;
  ItemLines items("workers", screen);
  for (const auto& [state, count] : now.by_state) items.add(state + " " + whole_text(count));
  for (const LiveStatus::MissingWorker& missing : now.missing)
    items.add("rank " + std::to_string(missing.rank) + " " + missing.state, Style::kBad);
  if (now.covered_by_workers > 0) items.add("rows of others " + whole_text(now.covered_by_workers));
  if (now.covered_by_coordinator > 0) items.add("rows of the coordinator " + whole_text(now.covered_by_coordinator));
  section.lines = items.take();
  return section;
}

/// What is kept of steps, and how long they take beside those of the day before.
Section archive(const LiveStatus& status, const Screen& screen) {
  const LiveStatus::Archive& now = status.archive;
  Section section{.rank = 9, .lines = {}};
  if (!now.is_on) return section;
  ItemLines items("archive", screen);
  items.add(whole_text(now.steps) + " steps, " + byte_text(as_real(now.bytes)));
  if (now.left_out > 0) items.add("left out " + whole_text(now.left_out), Style::kBad);
  bool is_known = false;
  for (const LiveStatus::Drift& drift : now.drift) {
    if (drift.median_ratio <= 0) continue;
    const std::string last = drift.p99_ratio > 0 ? ", 99 % " + figure_text(drift.p99_ratio) : "";
    items.add(
        drift.phase + (drift.is_alarmed ? " slower: " : " ") + figure_text(drift.median_ratio) + last + " of the day before",
        drift.is_alarmed ? Style::kBad : Style::kPlain);
    is_known = true;
  }
  if (!is_known) items.add("drift: too few steps to tell", Style::kFaint);
  section.lines = items.take();
  return section;
}

Section drafts(const LiveHistory& history, const Screen& screen) {
  Section section{.rank = 10, .lines = {}};
  if (history.now().steps.max_drafts == 0) return section;
  ItemLines items("drafts", screen);
  const auto growth = [&](int64_t LiveStatus::Steps::*part, int64_t LiveStatus::Steps::*whole) {
    return history.growth([part](const LiveStatus& s) { return as_real(s.steps.*part); },
                          [whole](const LiveStatus& s) { return as_real(s.steps.*whole); });
  };
  items.add("right " + percent_text(growth(&LiveStatus::Steps::drafts_right, &LiveStatus::Steps::drafts_tried)));
  items.add(figure_text(growth(&LiveStatus::Steps::sequence_tokens, &LiveStatus::Steps::sequence_steps)) + " tokens a step");
  const auto share_of_steps = [&](double LiveStatus::Steps::*part) {
    return percent_text(history.growth([part](const LiveStatus& s) { return s.steps.*part; }, step_seconds));
  };
  items.add("guessing takes " + share_of_steps(&LiveStatus::Steps::drafting_seconds));
  items.add("wrong ones " + share_of_steps(&LiveStatus::Steps::wasted_seconds));
  section.lines = items.take();
  return section;
}

/// Cells to the right of their columns, which are as wide as their widest cell; the last ones go where the screen ends.
Section table(int rank, const std::vector<std::vector<std::string>>& rows) {
  std::vector<int> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], display_width(row[c]));
  }
  Section section{.rank = rank, .lines = {}, .is_table = true};
  for (const auto& row : rows) {
    StyledLine line;
    for (std::size_t c = 0, end = 0; c < row.size(); ++c) {
      end += static_cast<std::size_t>(widths[c]) + (c == 0 ? 0 : 2);
      line.pad(static_cast<int>(end) - display_width(row[c]));
      line.add(row[c], section.lines.empty() ? Style::kFaint : Style::kPlain);
    }
    section.lines.push_back(std::move(line));
  }
  return section;
}

/// Lists the workers. One that died stays, with the reason, until another one has its rank.
Section members(const LiveStatus& status) {
  const auto is_told = [](const LiveStatus::Rank& rank) { return !rank.state.empty(); };
  if (std::ranges::none_of(status.ranks, is_told)) return {.rank = 11, .lines = {}};
  std::vector<std::vector<std::string>> rows = {{"rank", "state", "host", "address"}};
  for (const LiveStatus::Rank& rank : status.ranks)
    rows.push_back({std::to_string(rank.rank), rank.lost ? "dead" : rank.state, rank.host, rank.address});
  Section section = table(11, rows);
  for (std::size_t r = 0; r < status.ranks.size(); ++r) {
    const LiveStatus::Rank& rank = status.ranks[r];
    if (!rank.reason.empty()) section.lines[r + 1].add("  " + rank.reason, rank.lost ? Style::kBad : Style::kFaint);
  }
  return section;
}

Section ranks(const LiveStatus& status) {
  if (status.ranks.empty()) return {.rank = 12, .lines = {}};
  const double window = status.recent.window_s;
  int64_t all_rows = 0;
  for (const LiveStatus::Rank& rank : status.ranks) all_rows += rank.rows;
  std::vector<std::vector<std::string>> rows = {{"rank", "rows", "a layer", "out", "back", "trip", "waited for"}};
  for (const LiveStatus::Rank& rank : status.ranks) {
    const double exchanges = as_real(rank.exchanges);
    rows.push_back({std::to_string(rank.rank), percent_text(ratio(as_real(rank.rows), as_real(all_rows))),
                    figure_text(ratio(as_real(rank.rows), exchanges)), byte_rate_text(ratio(as_real(rank.bytes_out), window)),
                    byte_rate_text(ratio(as_real(rank.bytes_in), window)), seconds_text(ratio(rank.round_trip_s, exchanges)),
                    percent_text(ratio(rank.wait_s, window))});
  }
  return table(12, rows);
}

Section open_requests(const LiveStatus& status) {
  if (status.requests.oldest.empty()) return {.rank = 13, .lines = {}};
  std::vector<std::vector<std::string>> rows = {{"request", "state", "age", "prompt", "cached", "computed", "made"}};
  for (const LiveStatus::OpenRequest& request : status.requests.oldest) {
    std::string state = request.state;
    std::replace(state.begin(), state.end(), '_', ' ');
    rows.push_back({std::to_string(request.number), state, age_text(request.age_s), whole_text(request.prompt_tokens),
                    whole_text(request.cached_tokens), whole_text(request.computed_tokens),
                    whole_text(request.generated_tokens)});
  }
  return table(13, rows);
}

int num_lines(const std::vector<Section>& sections) {
  return std::accumulate(sections.begin(), sections.end(), 0,
                         [](int sum, const Section& section) { return sum + static_cast<int>(section.lines.size()); });
}

/// Cuts a table to `size` lines, of which the last one says how many are missing.
void cut(Section& table, std::size_t size) {
  if (size < 3) {
    table.lines.clear();
    return;
  }
  const std::size_t missing = table.lines.size() - (size - 1);
  table.lines.resize(size - 1);
  table.lines.emplace_back();
  table.lines.back().add("... " + std::to_string(missing) + " more", Style::kFaint);
}

/// Takes what matters least until all the rest has room.
void make_room(std::vector<Section>& sections, int rows) {
  for (auto table = sections.rbegin(); table != sections.rend(); ++table) {
    const int excess = num_lines(sections) - rows;
    if (excess <= 0) return;
    const int size = static_cast<int>(table->lines.size());
    if (table->is_table && size > 0) cut(*table, static_cast<std::size_t>(std::max(size - excess, 0)));
  }
  while (num_lines(sections) > rows && sections.size() > 1) {
    sections.erase(
        std::max_element(sections.begin(), sections.end(), [](const Section& a, const Section& b) { return a.rank < b.rank; }));
  }
  if (num_lines(sections) > rows) sections.front().lines.resize(static_cast<std::size_t>(rows));
}

}  // namespace

std::vector<std::string> draw_frame(const LiveHistory& history, const Screen& screen) {
  const LiveStatus& now = history.now();
  std::vector<Section> sections = {
      title(now, screen),   requests(now, screen),      tokens(history, screen), steps(history, screen),
      phases(now, screen),  latencies(history, screen), cache(now, screen),      experts(history, screen),
      workers(now, screen), archive(now, screen),       drafts(history, screen), members(now),
      ranks(now),           open_requests(now)};
  std::erase_if(sections, [](const Section& section) { return section.lines.empty(); });
  const auto is_table = [](const Section& section) { return section.is_table; };
  const auto num_tables = static_cast<int>(std::count_if(sections.begin(), sections.end(), is_table));
  const bool is_airy = screen.rows == 0 || num_lines(sections) + num_tables <= screen.rows;
  if (screen.rows > 0) make_room(sections, screen.rows);
  std::vector<std::string> lines;
  for (const Section& section : sections) {
    if (section.is_table && is_airy) lines.emplace_back();
    for (const StyledLine& line : section.lines) lines.push_back(line.render(screen));
  }
  return lines;
}

}  // namespace ferry
