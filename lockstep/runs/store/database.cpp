#include "lockstep/runs/store/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds busy_pause{20};

}  // namespace

Statement::Statement(Database& database, const char* sql) : database_(database) {
  const int code = sqlite3_prepare_v2(database.handle_, sql, -1, &statement_, nullptr);
  if (code != SQLITE_OK) database.fail(code);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(const std::string& text) {
  const int code = sqlite3_bind_text(statement_, ++bound_, text.data(),
                                     static_cast<int>(text.size()), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) database_.fail(code);
  return *this;
}

Statement& Statement::bind(int64_t number) {
  const int code = sqlite3_bind_int64(statement_, ++bound_, number);
  if (code != SQLITE_OK) database_.fail(code);
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_.fail(code);
  return false;
}

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return "";
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

Database::Database(std::string path, double wait_seconds)
    : path_(std::move(path)), wait_seconds_(wait_seconds) {
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(path_.c_str(), &handle_, flags, nullptr);
  try {
    if (code != SQLITE_OK) fail(code);
    sqlite3_extended_result_codes(handle_, 1);
    sqlite3_busy_timeout(handle_, static_cast<int>(wait_seconds * 1000));
    // SQLite does not wait for every lock that the change of the mode needs.
    const TimeLimit limit(wait_seconds);
    for (;;) {
      const int changed =
          sqlite3_exec(handle_, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
      if (changed == SQLITE_OK) break;
      if ((changed & 0xff) != SQLITE_BUSY || limit.reached()) fail(changed);
      std::this_thread::sleep_for(busy_pause);
    }
    // A power failure may lose the last transactions, never damage the file. Folders hold the same.
    run("PRAGMA synchronous = NORMAL");
  } catch (...) {
    sqlite3_close(handle_);
    throw;
  }
}

Database::~Database() { sqlite3_close(handle_); }

void Database::run(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

void Database::transaction(const std::function<void()>& work) {
  run("BEGIN IMMEDIATE");
  try {
    work();
    run("COMMIT");
  } catch (...) {
    // Some errors have already undone it.
    sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }

void Database::fail(int code) const {
  const std::string where = "[store] " + path_ + " ";
  const int kind = code & 0xff;
  // SQLite keeps the number of an earlier problem after a success.
  const bool of_system = kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN || kind == SQLITE_FULL;
  const int system = handle_ == nullptr || !of_system ? 0 : sqlite3_system_errno(handle_);
  const std::string problem = handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_);
  if (kind == SQLITE_FULL || system == ENOSPC || system == EDQUOT || system == EFBIG) {
    throw FileError(where + "cannot be written: the disk is full",
                    "free some space; `lockstep runs rebuild DIR...` then records what is missing");
  }
  switch (kind) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      throw Timeout(
          fmt::format("{}is locked by another process for more than {} s", where, wait_seconds_),
          "end the process that keeps it locked");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      throw DataError(where + "is damaged: " + sqlite3_errstr(kind),
                      "the folders of the runs are complete without it: rebuild it with "
                      "`lockstep runs rebuild DIR...`");
    case SQLITE_NOMEM:
      throw std::bad_alloc();
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_IOERR:
      throw FileError(where + "cannot be opened or written: " +
                          (system != 0 ? std::system_category().message(system) : problem),
                      "check its permissions; LOCKSTEP_HOME names another folder for the store");
    default:
      throw DataError(where + "does not work as a run store: " + problem);
  }
}

}  // namespace lockstep
