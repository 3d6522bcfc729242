#include "profiler/report/views/table.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/csv_field.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

std::string number(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace

std::string cell_text(const Table::Cell& cell, const Table::Column& column) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* whole = std::get_if<int64_t>(&cell)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&cell)) return number(*real, column.decimals);
  return "";
}

namespace {

/// Names in a capture are strangers' texts.
std::string shown_cell(const Table::Cell& cell, const Table::Column& column) { return printable(cell_text(cell, column)); }

/// Characters on a terminal: bytes that begin a UTF-8 character.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

void append_padded(std::string& line, const std::string& text, std::size_t to, bool left) {
  const std::string blanks(to - std::min(to, width(text)), ' ');
  if (!line.empty()) line += "  ";
  line += left ? text + blanks : blanks + text;
}

/// Numbers are ours: a negative one is no formula.
std::string csv_cell(const Table::Cell& cell, const Table::Column& column) {
  const std::string text = cell_text(cell, column);
  return std::holds_alternative<std::string>(cell) ? csv_field(text) : text;
}

void trim_end(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

std::string to_text(const Table& table, std::size_t max_rows) {
  const std::size_t shown = std::min(table.rows.size(), max_rows), columns = table.columns.size();
  std::vector<std::size_t> widths(columns);
  std::vector<bool> left(columns, false);
  for (std::size_t c = 0; c < columns; ++c) {
    widths[c] = width(table.columns[c].name);
    for (std::size_t r = 0; r < shown; ++r) {
      widths[c] = std::max(widths[c], width(shown_cell(table.rows[r][c], table.columns[c])));
      if (std::holds_alternative<std::string>(table.rows[r][c])) left[c] = true;
    }
  }
  std::string text = printable(table.title) + "\n";
  if (!table.note.empty()) text += printable(table.note) + "\n";
  std::string line;
  for (std::size_t c = 0; c < columns; ++c) append_padded(line, table.columns[c].name, widths[c], left[c]);
  trim_end(line);
  text += line + "\n";
  for (std::size_t r = 0; r < shown; ++r) {
    line.clear();
    for (std::size_t c = 0; c < columns; ++c)
      append_padded(line, shown_cell(table.rows[r][c], table.columns[c]), widths[c], left[c]);
    trim_end(line);
    text += line + "\n";
  }
  if (table.rows.empty()) text += "(none)\n";
  if (shown < table.rows.size()) {
    text += "… " + std::to_string(table.rows.size() - shown) + " more rows in csv/" + table.id + ".csv\n";
  }
  return text;
}

std::string to_csv(const Table& table) {
  std::string text;
  for (std::size_t c = 0; c < table.columns.size(); ++c) text += (c == 0 ? "" : ",") + csv_field(table.columns[c].name);
  text += "\n";
  for (const std::vector<Table::Cell>& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) text += (c == 0 ? "" : ",") + csv_cell(row[c], table.columns[c]);
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json to_json(const Table& table) {
  using nlohmann::ordered_json;
  ordered_json columns = ordered_json::array(), rows = ordered_json::array();
  for (const Table::Column& column : table.columns) columns.push_back({{"name", column.name}, {"decimals", column.decimals}});
  for (const std::vector<Table::Cell>& row : table.rows) {
    ordered_json cells = ordered_json::array();
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (const auto* text = std::get_if<std::string>(&row[c])) {
        cells.push_back(*text);
      } else if (const auto* whole = std::get_if<int64_t>(&row[c])) {
        cells.push_back(*whole);
      } else if (const auto* real = std::get_if<double>(&row[c])) {
        cells.push_back(std::stod(number(*real, table.columns[c].decimals)));  // as the CSV has it
      } else {
        cells.push_back(nullptr);
      }
    }
    rows.push_back(std::move(cells));
  }
  return {{"id", table.id},
          {"title", table.title},
          {"note", table.note},
          {"columns", std::move(columns)},
          {"rows", std::move(rows)}};
}

}  // namespace ferry
