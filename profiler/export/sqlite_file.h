#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace ferry {

class SqliteTable;

/// A new SQLite database that is written once, from front to back, in one transaction. What fails throws Error{kUnavailable}
/// with the file and SQLite's reason. One thread.
class SqliteFile {
 public:
  /// Replaces a file of that name.
  explicit SqliteFile(const std::filesystem::path& path);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  /// Ends the file; its tables are gone by then.
  void close();

 private:
  friend class SqliteTable;
  void execute(const std::string& sql);
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  sqlite3* database_ = nullptr;
};

/// A table that rows are appended to. `file` must outlive it.
class SqliteTable {
 public:
  /// `columns` as in CREATE TABLE: "id INTEGER PRIMARY KEY, value TEXT".
  SqliteTable(SqliteFile& file, std::string_view name, std::string_view columns);
  ~SqliteTable();
  SqliteTable(const SqliteTable&) = delete;
  SqliteTable& operator=(const SqliteTable&) = delete;

  /// One value for each column: integers, floating-point numbers, texts, or nullptr, as which an empty optional counts. Texts
  /// are repaired (repaired_text()) and end before a NUL: SQL's functions stop there.
  template <class... Values>
  void insert(const Values&... values) {
    int column = 0;
    (bind(++column, values), ...);
    finish_row(column);
  }

 private:
  void bind(int column, std::integral auto value) { bind_integer(column, static_cast<int64_t>(value)); }
  void bind(int column, double value);
  void bind(int column, std::string_view value);
  void bind(int column, std::nullptr_t);
  void bind(int column, std::optional<int64_t> value) { value ? bind_integer(column, *value) : bind(column, nullptr); }
  void bind_integer(int column, int64_t value);
  void check(int result) const;
  void finish_row(int num_values);

  SqliteFile& file_;
  sqlite3_stmt* insert_ = nullptr;
};

}  // namespace ferry
