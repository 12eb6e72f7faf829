// Database: an SQLite file that is written once, and its insert statements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ptdecode/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ptd::cli {

inline constexpr uint64_t kRowsPerCheck = 4096;  ///< after so many, writers look whether Ctrl-C was pressed

/// A new database, whose rows are written in one transaction without a journal: if a write fails, the file is useless and must be removed.
/// Errors of every function: write_failed. Not thread-safe.
class Database {
 public:
  /// Opens an empty file. `file` is its path, which may be a link to it; messages call it `name`.
  [[nodiscard]] static Result<std::unique_ptr<Database>> create(const std::string& file, std::string name);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Runs statements that return no rows, separated by semicolons.
  [[nodiscard]] Status run(const std::string& sql);
  /// Returns the first value of a query, a number; 0 if it is null.
  [[nodiscard]] Result<int64_t> number(const std::string& sql);
  /// Ends the transaction. Each statement after it is one of its own.
  [[nodiscard]] Status commit();
  /// After commit(): runs statements that return no rows, unless stopped() is or becomes true: then changes nothing and returns false.
  [[nodiscard]] Result<bool> run_unless(const std::string& sql, bool (*stopped)());
  [[nodiscard]] Error failed(std::string_view what) const;

 private:
  friend class Inserter;
  Database(sqlite3* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  sqlite3* handle_;
  const std::string name_;
};

/// Returns the version of SQLite that is loaded.
[[nodiscard]] const char* sqlite_version();

/// Inserts rows into one table. Set every value, then call insert(). Values keep what they were for the next row, except texts, which must
/// live until insert(). Must not outlive the database. Not thread-safe.
class Inserter {
 public:
  /// `columns`: those that are set, by comma; the others get their default.
  [[nodiscard]] static Result<std::unique_ptr<Inserter>> create(Database& database, std::string_view table, std::string_view columns);
  ~Inserter();
  Inserter(const Inserter&) = delete;
  Inserter& operator=(const Inserter&) = delete;

  /// The columns are numbered from 0. Addresses of the upper half become negative: SQLite's integers are signed.
  void set(size_t column, int64_t value);
  void set(size_t column, std::string_view text);  ///< UTF-8
  void set(size_t column, std::span<const std::byte> bytes);
  void set_null(size_t column);
  [[nodiscard]] Status insert();
  [[nodiscard]] uint64_t rows() const { return rows_; }

 private:
  Inserter(Database& database, sqlite3_stmt* statement, std::string table)
      : database_(database), statement_(statement), table_(std::move(table)) {}
  Database& database_;
  sqlite3_stmt* statement_;
  std::string table_;
  uint64_t rows_ = 0;
};

}  // namespace ptd::cli
