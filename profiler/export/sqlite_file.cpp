#include "profiler/export/sqlite_file.h"

#include <sqlite3.h>

#include <algorithm>

#include "profiler/export/text_file.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

std::size_t count_columns(std::string_view columns) {
  return 1 + static_cast<std::size_t>(std::count(columns.begin(), columns.end(), ','));
}

}  // namespace

SqliteFile::SqliteFile(const std::filesystem::path& path) : path_(path) {
  std::error_code failure;
  std::filesystem::remove(path, failure);
  if (failure) throw Error(ErrorCode::kUnavailable, "'" + path.string() + "' cannot be replaced: " + failure.message());
  const int opened = sqlite3_open_v2(path.c_str(), &database_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  try {
    if (opened != SQLITE_OK) fail();
    // Nothing is to be saved of a file that was not finished.
    execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; BEGIN");
  } catch (...) {
    sqlite3_close_v2(database_);
    throw;
  }
}

SqliteFile::~SqliteFile() { sqlite3_close_v2(database_); }

void SqliteFile::close() {
  execute("COMMIT");
  if (sqlite3_close(database_) != SQLITE_OK) fail();
  database_ = nullptr;
}

void SqliteFile::execute(const std::string& sql) {
  if (sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

void SqliteFile::fail() const {
  const char* const reason = database_ == nullptr ? "no memory" : sqlite3_errmsg(database_);
  throw Error(ErrorCode::kUnavailable, "'" + path_.string() + "' cannot be written: " + reason);
}

SqliteTable::SqliteTable(SqliteFile& file, std::string_view name, std::string_view columns) : file_(file) {
  file.execute("CREATE TABLE " + std::string(name) + " (" + std::string(columns) + ")");
  std::string sql = "INSERT INTO " + std::string(name) + " VALUES (?";
  for (std::size_t c = 1; c < count_columns(columns); ++c) sql += ",?";
  check(sqlite3_prepare_v2(file.database_, (sql + ")").c_str(), -1, &insert_, nullptr));
}

SqliteTable::~SqliteTable() { sqlite3_finalize(insert_); }

void SqliteTable::check(int result) const {
  if (result != SQLITE_OK) file_.fail();
}

void SqliteTable::bind_integer(int column, int64_t value) { check(sqlite3_bind_int64(insert_, column, value)); }

void SqliteTable::bind(int column, double value) { check(sqlite3_bind_double(insert_, column, value)); }

void SqliteTable::bind(int column, std::string_view value) {
  const std::string text = repaired_text(value.substr(0, value.find('\0')));
  check(sqlite3_bind_text64(insert_, column, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}

void SqliteTable::bind(int column, std::nullptr_t) { check(sqlite3_bind_null(insert_, column)); }

void SqliteTable::finish_row(int num_values) {
  FERRY_CHECK_EQ(num_values, sqlite3_bind_parameter_count(insert_)) << " values of a row";
  if (sqlite3_step(insert_) != SQLITE_DONE) file_.fail();
  check(sqlite3_reset(insert_));
}

}  // namespace ferry
