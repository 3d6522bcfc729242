#include "profiler/report/report_page.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "profiler/report/findings/findings_json.h"
#include "profiler/report/page_source.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxRows = 4000;                 // of a table that is read as a list
constexpr std::size_t kMaxDrawn = 8000;                // of the steps and of memory over time, which are drawn as well
constexpr std::size_t kMaxExperts = 40'000;            // of the experts, of which each is one cell of a picture
constexpr std::size_t kMaxBytes = 1'600'000;           // of all tables together
constexpr std::size_t kFewRows = 64;                   // not shortened further
constexpr int64_t kMaxWhole = (int64_t{1} << 53) - 1;  // JavaScript's Number.MAX_SAFE_INTEGER

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// JSON that may stand inside <script>: what could end or confuse the element is written as \u escapes, which is the same
/// JSON, because these characters occur only in strings.
std::string dump_for_script(const ordered_json& json) {
  std::string text = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  replace_all(text, "<", "\\u003c");
  replace_all(text, ">", "\\u003e");
  replace_all(text, "&", "\\u0026");
  replace_all(text, "\u2028", "\\u2028");
  replace_all(text, "\u2029", "\\u2029");
  return text;
}

std::size_t max_rows(std::string_view id) {
  if (id == "expert") return kMaxExperts;
  return id == "step" || id == "memory_timeline" ? kMaxDrawn : kMaxRows;
}

std::string embed_table(const Table& table, std::size_t max_rows) {
  Table shown{table.id, table.title, table.note, table.columns, {}};
  const std::size_t num_rows = std::min(table.rows.size(), max_rows);
  shown.rows.assign(table.rows.begin(), table.rows.begin() + static_cast<std::ptrdiff_t>(num_rows));
  for (std::vector<Table::Cell>& row : shown.rows) {
    for (Table::Cell& cell : row) {
      const auto* whole = std::get_if<int64_t>(&cell);
      if (whole != nullptr && (*whole > kMaxWhole || *whole < -kMaxWhole)) cell = std::to_string(*whole);
    }
  }
  ordered_json json = to_json(shown);
  json["num_rows"] = table.rows.size();
  return dump_for_script(json);
}

/// Every table's JSON; the longest ones are shortened until all of them fit.
std::vector<std::string> embed_tables(const std::vector<Table>& tables) {
  std::vector<std::size_t> limits;
  std::vector<std::string> embedded;
  std::size_t total = 0;
  for (const Table& table : tables) {
    limits.push_back(std::min(table.rows.size(), max_rows(table.id)));
    embedded.push_back(embed_table(table, limits.back()));
    total += embedded.back().size();
  }
  while (total > kMaxBytes) {
    const auto longest = std::max_element(embedded.begin(), embedded.end(),
                                          [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
    const auto t = static_cast<std::size_t>(longest - embedded.begin());
    if (limits[t] <= kFewRows) break;  // names as long as books: nothing to be gained by fewer rows
    limits[t] /= 2;
    total -= longest->size();
    *longest = embed_table(tables[t], limits[t]);
    total += longest->size();
  }
  return embedded;
}

std::string make_data(const std::string& title, const std::vector<Finding>& findings, const std::vector<Table>& tables,
                      const ordered_json& timelines, const std::vector<std::string>& files) {
  std::string data = "{\"title\":" + dump_for_script(title) + ",\n\"findings\":" + dump_for_script(findings_json(findings)) +
                     ",\n\"tables\":[";
  const char* separator = "\n";
  for (const std::string& table : embed_tables(tables)) {
    data += separator + table;
    separator = ",\n";
  }
  return data + "\n],\n\"timelines\":" + dump_for_script(timelines) + ",\n\"files\":" + dump_for_script(files) + "}";
}

/// Appends `page` up to `mark` and what stands there instead; `page` goes on behind it.
void fill(std::string& out, std::string_view& page, std::string_view mark, std::string_view content) {
  const std::size_t at = page.find(mark);
  FERRY_CHECK(at != std::string_view::npos);
  out += page.substr(0, at);
  out += content;
  page.remove_prefix(at + mark.size());
}

}  // namespace

std::string make_report_page(const std::string& title, const std::vector<Finding>& findings, const std::vector<Table>& tables,
                             const ordered_json& timelines, const std::vector<std::string>& files) {
  std::string out;
  std::string_view page = page_source::kHtml;
  fill(out, page, "{{title}}", escape_html(title));
  fill(out, page, "{{style}}", page_source::kStyle);
  fill(out, page, "{{data}}", make_data(title, findings, tables, timelines, files));
  fill(out, page, "{{script}}", page_source::kScript);
  out += page;
  return out;
}

}  // namespace ferry
