#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "profiler/export/ascend_profile.h"
#include "tests/support/temp_folder.h"

namespace ferry::test {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Rows of a CSV by column. Quoted cells may hold commas, doubled quotes and ends of lines.
using CsvRow = std::map<std::string, std::string>;

inline std::vector<std::string> split_csv_line(const std::string& line) {
  std::vector<std::string> cells(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && is_quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (line[i] == '"') {
      is_quoted = !is_quoted;
    } else if (line[i] == ',' && !is_quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return cells;
}

inline std::vector<CsvRow> read_csv(const std::filesystem::path& path) {
  std::istringstream lines(read_text(path));
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> header = split_csv_line(line);
  std::vector<CsvRow> rows;
  while (std::getline(lines, line)) {
    std::string more;
    while (std::count(line.begin(), line.end(), '"') % 2 != 0 && std::getline(lines, more)) line += '\n' + more;
    const std::vector<std::string> cells = split_csv_line(line);
    EXPECT_EQ(cells.size(), header.size()) << line;
    CsvRow& row = rows.emplace_back();
    for (std::size_t i = 0; i < std::min(cells.size(), header.size()); ++i) row[header[i]] = cells[i];
  }
  return rows;
}

/// Nanoseconds of a number of microseconds.
inline int64_t us_to_ns(const std::string& microseconds) { return std::llround(std::stod(microseconds) * 1000); }
/// Nanoseconds of a number of milliseconds, or bytes of a number of megabytes.
inline int64_t millionths(const nlohmann::json& number) { return std::llround(number.get<double>() * 1e6); }

/// The folders of a capture, written into a folder that lives as long as this.
class AscendFolders {
 public:
  explicit AscendFolders(const ReportInput& input) {
    write_ascend_profiles(input, root_.path());
    for (const auto& entry : std::filesystem::directory_iterator(root_.path())) {
      for (const RankCapture& rank : input.capture.ranks) {
        if (std::filesystem::exists(entry.path() / ("profiler_info_" + std::to_string(rank.rank) + ".json")))
          folders_[rank.rank] = entry.path();
      }
    }
  }

  const std::filesystem::path& root() const { return root_.path(); }
  std::size_t size() const { return folders_.size(); }
  std::filesystem::path folder(int32_t rank) const { return folders_.at(rank); }
  std::filesystem::path output(int32_t rank, const std::string& file) const {
    return folder(rank) / "ASCEND_PROFILER_OUTPUT" / file;
  }
  nlohmann::json json(int32_t rank, const std::string& file) const {
    return nlohmann::json::parse(read_text(output(rank, file)));
  }
  std::vector<CsvRow> csv(int32_t rank, const std::string& file) const { return read_csv(output(rank, file)); }

 private:
  TempFolder root_;
  std::map<int32_t, std::filesystem::path> folders_;
};

}  // namespace ferry::test
