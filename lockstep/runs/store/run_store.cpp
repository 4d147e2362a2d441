#include "lockstep/runs/store/run_store.h"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/storage/object_store.h"

namespace lockstep {
namespace {

// Each entry leads from the version before it to its own.
constexpr const char* migrations[] = {
    "CREATE TABLE runs("
    " number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL,"  // of the run; copies of a folder share it
    " folder TEXT NOT NULL UNIQUE,"
    " summary TEXT NOT NULL,"  // JSON, see stored_run.h
    " notes TEXT NOT NULL);"   // JSON, see run_facts.h
    "CREATE INDEX runs_by_id ON runs(id);"};
constexpr int64_t newest_version = std::size(migrations);

int64_t version_of(Database& database) {
  Statement statement(database, "PRAGMA user_version");
  statement.step();
  return statement.integer(0);
}

void require_known(int64_t version, const std::string& path) {
  if (version <= newest_version) return;
  throw Unsupported("[store] " + path + " was written by a later version of Lockstep (schema " +
                        std::to_string(version) + "; this version knows " +
                        std::to_string(newest_version) + ")",
                    "use that version, or another store with LOCKSTEP_HOME");
}

void migrate(Database& database) {
  const int64_t found = version_of(database);
  require_known(found, database.path());
  if (found == newest_version) return;
  database.transaction([&] {
    const int64_t version = version_of(database);  // another process may have migrated it
    require_known(version, database.path());
    for (int64_t next = version; next < newest_version; ++next) database.run(migrations[next]);
    if (version == newest_version) return;
    database.run(("PRAGMA user_version = " + std::to_string(newest_version)).c_str());
  });
}

// Where SQLite's locks are known to fail.
void refuse_network_disks(const std::string& folder) {
  struct statfs disk = {};
  if (::statfs(folder.c_str(), &disk) != 0) return;
  const auto type = static_cast<uint32_t>(disk.f_type);
  for (const auto& [magic, name] : {std::pair{0x6969u, "NFS"},
                                    {0x517bu, "SMB"},
                                    {0xff534d42u, "CIFS"},
                                    {0xfe534d42u, "SMB2"},
                                    {0x0bd00bd0u, "Lustre"},
                                    {0x00c36400u, "Ceph"},
                                    {0x47504653u, "GPFS"}}) {
    if (type != magic) continue;
    throw Unsupported(std::string("[store] ") + folder + " is on a network file system (" + name +
                          "), where locks do not work",
                      "set LOCKSTEP_HOME to a folder on a local disk");
  }
}

// Jobs, notes and paths are the user's own. A file that its group can write is shared on purpose.
// SQLite gives its other files the mode of the first.
void make_private(const std::string& path) {
  const auto fail = [&] {
    throw FileError(
        "[store] " + path + " cannot be written: " + std::system_category().message(errno),
        "check the permissions of its folder; LOCKSTEP_HOME names another folder for the store");
  };
  // Not opened: closing a file releases the locks of SQLite in this process.
  if (::mknod(path.c_str(), S_IFREG | 0600, 0) == 0) return;
  if (errno == ENOSYS || errno == EOPNOTSUPP) return;  // SQLite makes it
  if (errno != EEXIST) fail();
  for (const char* part : {"", "-wal", "-shm"}) {
    const std::string file = path + part;
    struct stat status {};
    const bool mine = ::lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                      status.st_uid == ::geteuid();
    if (mine && (status.st_mode & 022) == 0 && (status.st_mode & 077) != 0) {
      ::chmod(file.c_str(), status.st_mode & 0700);
    }
  }
  if (::access(path.c_str(), W_OK) != 0) fail();
}

std::string path_in(const std::string& folder) {
  if (!local_files().exists(folder)) {
    make_folders(local_files(), folder);
    ::chmod(folder.c_str(), 0700);
  }
  make_folders(local_files(), folder);
  refuse_network_disks(folder);
  const std::string path = join_path(folder, store_file_name);
  make_private(path);
  return path;
}

StoredRun run_of(const Statement& row) {
  StoredRun run = stored_run_of(row.text(1));
  run.number = row.integer(0);
  run.notes = run_notes_of(row.text(2));
  return run;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 18 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

std::string absolute(const std::string& folder) {
  if (storage::is_address(folder)) return folder.substr(0, folder.find_last_not_of('/') + 1);
  std::string path = std::filesystem::absolute(folder).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Whether a list may print the run with this name, to tell it from others.
bool has_longer_name(const StoredRun& run, const std::string& name) {
  std::string before = run_name(run);
  for (int longer = 1;; ++longer) {
    std::string next = run_name(run, longer);
    if (next == name) return true;
    if (next == before) return false;
    before = std::move(next);
  }
}

}  // namespace

std::string default_store_folder() { return find_user_folder(UserFolder::data); }

RunStore::RunStore(const std::string& folder, double wait_seconds)
    : database_(path_in(folder), wait_seconds) {
  migrate(database_);
}

int64_t RunStore::record(StoredRun run) {
  database_.transaction([&] {
    std::optional<std::pair<int64_t, std::string>> here, moved;  // number and id
    {
      Statement at(database_, "SELECT number, id FROM runs WHERE folder = ?");
      at.bind(run.folder);
      if (at.step()) here = {at.integer(0), at.text(1)};
    }
    if (!run.facts.id.empty()) {
      Statement same(database_, "SELECT number, folder FROM runs WHERE id = ? AND folder <> ?");
      same.bind(run.facts.id).bind(run.folder);
      while (!moved && same.step()) {
        const std::string there = same.text(1);
        // A run in an S3 store is not looked for there.
        const bool gone = read_run_facts(local_files(), there).id != run.facts.id;
        if (gone && !storage::is_address(there)) {
          moved = {same.integer(0), there};
        }
      }
    }
    if (here && here->second != run.facts.id && !here->second.empty()) {
      remove(here->first);
      here.reset();
    }
    if (here && moved) remove(here->first);
    run.number = moved ? moved->first : here ? here->first : 0;
    const std::string summary = to_text(run), notes = to_text(run.notes);
    if (run.number == 0) {
      Statement add(database_, "INSERT INTO runs(id, folder, summary, notes) VALUES(?, ?, ?, ?)");
      add.bind(run.facts.id).bind(run.folder).bind(summary).bind(notes).step();
      run.number = database_.last_id();
      return;
    }
    Statement change(database_,
                     "UPDATE runs SET id = ?, folder = ?, summary = ?, notes = ? WHERE number = ?");
    change.bind(run.facts.id).bind(run.folder).bind(summary).bind(notes).bind(run.number).step();
  });
  return run.number;
}

std::vector<StoredRun> RunStore::runs() {
  std::vector<StoredRun> all;
  Statement row(database_, "SELECT number, summary, notes FROM runs ORDER BY number");
  while (row.step()) all.push_back(run_of(row));
  return all;
}

StoredRun RunStore::find(const std::string& reference) {
  const bool by_number = is_number(reference);
  Statement row(database_, by_number ? "SELECT number, summary, notes FROM runs WHERE number = ?"
                                     : "SELECT number, summary, notes FROM runs WHERE folder = ?");
  if (by_number) {
    row.bind(static_cast<int64_t>(std::stoll(reference)));
  } else {
    row.bind(absolute(reference));
  }
  if (row.step()) return run_of(row);
  std::vector<StoredRun> named = by_number ? std::vector<StoredRun>() : runs();
  // The shortest names precede longer ones of other runs.
  const auto shortest = [&](const StoredRun& run) { return run_name(run) == reference; };
  const bool any = std::any_of(named.begin(), named.end(), shortest);
  std::erase_if(named, [&](const StoredRun& run) {
    return any ? !shortest(run) : !has_longer_name(run, reference);
  });
  if (named.size() == 1) return named.front();
  if (named.size() > 1) {
    std::string numbers;
    for (const StoredRun& run : named)
      numbers += (numbers.empty() ? "" : ", ") + std::to_string(run.number);
    throw InvalidArgument("[store] several runs have the name " + reference,
                          "name one by its number: " + numbers);
  }
  throw InvalidArgument("[store] there is no run " + reference + " in " + database_.path(),
                        by_number
                            ? "`lockstep runs list --all` shows the numbers"
                            : "`lockstep runs rebuild " + reference + "` adds a folder of a run");
}

void RunStore::change_notes(int64_t number, const std::function<void(RunNotes&)>& change) {
  database_.transaction([&] {
    StoredRun run = find(std::to_string(number));
    FileSystem& files = local_files();
    const bool there =
        files.is_folder(run.folder) && read_run_facts(files, run.folder).id == run.facts.id;
    if (there) run.notes = read_run_notes(files, run.folder);
    const RunNotes before = run.notes;
    change(run.notes);
    if (there && run.notes != before) write_run_notes(files, run.folder, run.notes);
    Statement update(database_, "UPDATE runs SET notes = ? WHERE number = ?");
    update.bind(to_text(run.notes)).bind(number).step();
  });
}

void RunStore::remove(int64_t number) {
  Statement statement(database_, "DELETE FROM runs WHERE number = ?");
  statement.bind(number).step();
}

std::string set_damaged_store_aside(const std::string& folder) {
  FileSystem& files = local_files();
  const std::string path = join_path(folder, store_file_name);
  if (!files.exists(path)) return "";
  try {
    RunStore store(folder);
    Database database(path, 10);
    Statement check(database, "PRAGMA quick_check(1)");
    if (check.step() && check.text(0) == "ok") {
      store.runs();
      return "";
    }
  } catch (const FileError&) {
    throw;
  } catch (const DataError&) {  // damaged
  }
  std::string aside;
  for (int number = 1; aside.empty() || files.exists(aside); ++number) {
    aside = path + ".damaged-" + std::to_string(number);
  }
  files.rename(path, aside);
  for (const char* part : {"-wal", "-shm"}) files.remove(path + part);
  return aside;
}

}  // namespace lockstep
