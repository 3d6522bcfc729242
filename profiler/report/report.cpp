#include "profiler/report/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "profiler/report/findings/action_text.h"
#include "profiler/report/findings/findings_json.h"
#include "profiler/report/page_data/step_timelines.h"
#include "profiler/report/report_page.h"
#include "profiler/report/views/views.h"
#include "profiler/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

constexpr std::size_t kWideColumns = 8;
constexpr std::size_t kTextRows = 30;

/// A table of one wide row as two columns, which a terminal can show.
Table stand_up(const Table& table) {
  Table tall{.id = table.id, .title = table.title, .note = table.note, .columns = {{"name"}, {"value"}}};
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    tall.rows.push_back({table.columns[c].name, cell_text(table.rows[0][c], table.columns[c])});
  return tall;
}

std::string make_report_json(const std::vector<Finding>& findings, const std::vector<Table>& tables) {
  using nlohmann::ordered_json;
  ordered_json shown = ordered_json::array();
  for (const Table& table : tables) shown.push_back(to_json(table));
  const ordered_json report = {{"findings", findings_json(findings)}, {"tables", std::move(shown)}};
  return report.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string make_title(const CaptureInfo& info) {
  return "Ferry: " + info.model.name + ", " + std::to_string(info.world_size) + (info.world_size == 1 ? " rank" : " ranks");
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  write_file_anew(path, [&](std::ostream& out) { out << text; });
}

/// What else a capture's folder may hold for people and their tools; names of folders end with '/'.
std::vector<std::string> list_files(const std::filesystem::path& directory) {
  constexpr std::size_t kMostFolders = 16;  // of ranks as Ascend's profiler has them
  std::vector<std::string> files, folders;
  std::error_code code;
  for (const char* name : {"trace.pftrace", "trace.json", "report.json", "report.txt", "profile.pb.gz", "stacks.pb.gz",
                           "stacks.speedscope.json", "routing.ferryrt", "kineto/"}) {
    if (std::filesystem::exists(directory / name, code)) files.emplace_back(name);
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with("_ascend_pt") && entry.is_directory(code)) folders.push_back(name + "/");
  }
  std::ranges::sort(folders);
  folders.resize(std::min(folders.size(), kMostFolders));
  files.insert(files.end(), folders.begin(), folders.end());
  return files;
}

}  // namespace

std::vector<Table> make_report_tables(const ReportInput& input, const std::vector<Finding>& findings) {
  std::vector<Table> tables = make_views(input);
  Table actions = make_action_view(findings);
  if (!actions.rows.empty()) tables.insert(tables.begin() + 1, std::move(actions));
  return tables;
}

std::string make_report_text(const std::vector<Finding>& findings, const std::vector<Table>& tables) {
  std::string text = "Findings\n";
  for (const Finding& finding : findings) {
    text += std::string("  ") + severity_name(finding.severity) + ": " + printable(finding.text);
    if (!finding.table.empty()) text += " [" + finding.table + "]";
    text += "\n";
    for (const Action& action : finding.actions) text += "    " + printable(action_text(action)) + "\n";
  }
  for (const Table& table : tables) {
    const bool is_wide = table.rows.size() == 1 && table.columns.size() > kWideColumns;
    text += "\n" + to_text(is_wide ? stand_up(table) : table, kTextRows + (is_wide ? table.columns.size() : 0));
  }
  return text;
}

std::string write_report(const std::filesystem::path& directory, const ReportInput& input, FindFindings find, StepRange steps) {
  const std::vector<Finding> findings = find(input);
  const std::vector<Table> tables = make_report_tables(input, findings);
  std::error_code code;
  refuse_links_in(directory);
  std::filesystem::create_directory(directory / "csv", code);
  if (code) throw Error(ErrorCode::kUnavailable, "cannot make " + (directory / "csv").string() + ": " + code.message());
  for (const Table& table : tables) write_text(directory / "csv" / (table.id + ".csv"), to_csv(table));
  const std::string text = make_report_text(findings, tables);
  write_text(directory / "report.txt", text);
  write_text(directory / "report.json", make_report_json(findings, tables));
  const nlohmann::ordered_json timelines =
      make_step_timelines(input, findings, steps, steps.is_any() ? kWantedTimelineBytes : kTimelineBytes);
  write_text(directory / "report.html",
             make_report_page(make_title(input.capture.info), findings, tables, timelines, list_files(directory)));
  return text;
}

}  // namespace ferry
