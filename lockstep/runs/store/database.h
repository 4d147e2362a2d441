// A database file of SQLite, for the run store.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

struct sqlite3;
struct sqlite3_stmt;

namespace lockstep {

class Database;

// A prepared statement. Values are bound, never pasted into its text. Not thread-safe.
class Statement {
 public:
  Statement(Database& database, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Binds the next parameter.
  Statement& bind(const std::string& text);
  Statement& bind(int64_t number);
  // Whether there is another row. Throws like Database::run().
  bool step();
  std::string text(int column) const;
  int64_t integer(int column) const;

 private:
  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// An open database in WAL mode. Several processes may use it at once. A process that is killed
// leaves all committed transactions and nothing of others. Not thread-safe.
class Database {
 public:
  // Opens or makes the file. Other processes may keep the database locked for up to `wait_seconds`.
  // Throws FileError (no access, full disk), Timeout (locked), DataError (damaged).
  Database(std::string path, double wait_seconds);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::string& path() const { return path_; }
  // Executes statements without parameters. Throws like the constructor.
  void run(const char* sql);
  // Executes `work` in a transaction that locks out other writers from its beginning. An exception
  // undoes it.
  void transaction(const std::function<void()>& work);
  int64_t last_id() const;
  [[noreturn]] void fail(int code) const;

 private:
  friend class Statement;
  std::string path_;
  double wait_seconds_;
  sqlite3* handle_ = nullptr;
};

}  // namespace lockstep
