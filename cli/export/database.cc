// Database: see database.h.
#include "cli/export/database.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "cli/text/output_trouble.h"

namespace ptd::cli {

namespace {

// The page cache is what a database may use of memory; sorting for an index uses a file beyond it.
constexpr const char* kSetUp =
    "PRAGMA page_size = 16384; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
    "PRAGMA cache_size = -65536; PRAGMA temp_store = FILE; BEGIN";

/// Whether the file is as large as this process may make files. SQLite does not keep the errno of each failed write.
bool is_at_size_limit(const char* path) {
  constexpr uint64_t kPageBytes = 16384;  // which is not written in part
  struct rlimit limit {};
  struct stat file {};
  if (path == nullptr || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || ::stat(path, &file) != 0)
    return false;
  return static_cast<uint64_t>(file.st_size) + kPageBytes > limit.rlim_cur;
}

}  // namespace

Result<std::unique_ptr<Database>> Database::create(const std::string& file, std::string name) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(file.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> database(new Database(handle, std::move(name)));
  if (code != SQLITE_OK) return database->failed("open the database");
  if (const Status ready = database->run(kSetUp); !ready) return ready.error();
  return database;
}

Database::~Database() { sqlite3_close_v2(handle_); }

Error Database::failed(std::string_view what) const {
  std::string why = handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_);
  const bool is_write_error = handle_ != nullptr && (sqlite3_errcode(handle_) & 0xff) == SQLITE_IOERR;
  if (is_write_error && is_at_size_limit(sqlite3_db_filename(handle_, "main"))) why = write_trouble(EFBIG);
  return {ErrorCode::write_failed, fmt::format("{}: cannot {}: {}", name_, what, why), 0};
}

Status Database::run(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return failed("write the database");
}

Result<int64_t> Database::number(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const bool read = sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
  const int64_t value = read ? sqlite3_column_int64(statement, 0) : 0;
  const Result<int64_t> result = read ? Result<int64_t>(value) : Result<int64_t>(failed("read the database"));
  sqlite3_finalize(statement);
  return result;
}

const char* sqlite_version() { return sqlite3_libversion(); }

// Without a journal, a statement that ends early damages the file. That of an index holds few pages, because its own are new.
Status Database::commit() { return run("COMMIT; PRAGMA journal_mode = MEMORY"); }

Result<bool> Database::run_unless(const std::string& sql, bool (*stopped)()) {
  constexpr int kStepsPerCheck = 100'000;  // about a millisecond
  if (stopped()) return false;
  using Stopped = bool (*)();
  sqlite3_progress_handler(
      handle_, kStepsPerCheck, [](void* asked) { return (*static_cast<Stopped*>(asked))() ? 1 : 0; }, &stopped);
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  sqlite3_progress_handler(handle_, 0, nullptr, nullptr);
  if (code == SQLITE_OK || code == SQLITE_INTERRUPT) return code == SQLITE_OK;
  return failed("write the database");
}

Result<std::unique_ptr<Inserter>> Inserter::create(Database& database, std::string_view table, std::string_view columns) {
  std::string places = "?";
  for (auto left = std::count(columns.begin(), columns.end(), ','); left != 0; --left) places += ",?";
  const std::string sql = fmt::format("INSERT INTO {} ({}) VALUES ({})", table, columns, places);
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(database.handle_, sql.c_str(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return database.failed(fmt::format("write the table {}", table));
  return std::unique_ptr<Inserter>(new Inserter(database, statement, std::string(table)));
}

Inserter::~Inserter() { sqlite3_finalize(statement_); }

void Inserter::set(size_t column, int64_t value) { sqlite3_bind_int64(statement_, static_cast<int>(column) + 1, value); }
void Inserter::set(size_t column, std::string_view text) {
  sqlite3_bind_text64(statement_, static_cast<int>(column) + 1, text.data() == nullptr ? "" : text.data(), text.size(), SQLITE_STATIC,
                      SQLITE_UTF8);
}
void Inserter::set(size_t column, std::span<const std::byte> bytes) {
  sqlite3_bind_blob64(statement_, static_cast<int>(column) + 1, bytes.empty() ? "" : static_cast<const void*>(bytes.data()), bytes.size(),
                      SQLITE_STATIC);
}
void Inserter::set_null(size_t column) { sqlite3_bind_null(statement_, static_cast<int>(column) + 1); }

Status Inserter::insert() {
  const bool done = sqlite3_step(statement_) == SQLITE_DONE;
  sqlite3_reset(statement_);
  if (!done) return database_.failed(fmt::format("write the table {}", table_));
  ++rows_;
  return {};
}

}  // namespace ptd::cli
