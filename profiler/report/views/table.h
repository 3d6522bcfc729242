#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

namespace ferry {

/// What every view of a capture is: a table that is printed, written as CSV and drawn from by the page. Numbers are kept whole
/// and rounded only where people read them.
struct Table {
  struct Column {
    std::string name;  // "computing_us": unit last
    int decimals = 0;  // of doubles in text and CSV
  };
  using Cell = std::variant<std::monostate, std::string, int64_t, double>;  // monostate: nothing to say

  std::string id;     // "phase": names the CSV file and the page's section
  std::string title;  // "Phases"
  std::string note;   // one or two sentences: how to read it; may be empty
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

/// For terminals: columns aligned, numbers to the right; at most `max_rows` rows and a line that says how many more.
std::string to_text(const Table& table, std::size_t max_rows = 40);
/// RFC 4180, a header line first; numbers with their column's decimals.
std::string to_csv(const Table& table);

/// A cell as people read it, doubles with the column's decimals; empty for one without anything to say.
std::string cell_text(const Table::Cell& cell, const Table::Column& column);
/// {"id":…,"title":…,"note":…,"columns":[…],"rows":[[…]]}, with the very numbers of the CSV.
nlohmann::ordered_json to_json(const Table& table);

}  // namespace ferry
