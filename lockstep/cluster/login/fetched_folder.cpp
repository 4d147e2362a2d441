#include "lockstep/cluster/login/fetched_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void make_private_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw FileError("[fetch] cannot make " + folder + ": " + std::system_category().message(errno));
  }
  // In a folder like /tmp another user could have made it.
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) {
    throw FileError("[fetch] " + folder + " is not a folder of this user", "remove it");
  }
}

void refuse_used(const std::string& folder, const std::string& out) {
  std::error_code error;
  if (fs::exists(folder, error) &&
      !(fs::is_directory(folder, error) && fs::is_empty(folder, error))) {
    throw InvalidArgument("[fetch] " + out + " exists and is not an empty folder");
  }
}

}  // namespace

FetchedFolder::FetchedFolder(const std::string& out)
    : out_(fs::absolute(out).lexically_normal().string()) {
  while (out_.size() > 1 && out_.ends_with('/')) out_.pop_back();
  refuse_used(out_, out);
  const std::string parent = folder_of(out_);
  make_folders(local_files(), parent);
  hidden_ = join_path(parent, ".lockstep-fetch-" + fs::path(out_).filename().string());
  make_private_folder(hidden_);
  const std::string lock = join_path(hidden_, "lock");
  try {
    lock_ = FileLock::take(lock);
  } catch (const FileError&) {  // another fetch has ended meanwhile and removed the folder
    make_private_folder(hidden_);
    lock_ = FileLock::take(lock);
  }
  if (!lock_) {
    throw InvalidArgument("[fetch] another process fetches to " + out,
                          "wait for it, or choose another folder with --out");
  }
  std::error_code error;
  try {
    refuse_used(out_, out);  // a fetch that held the lock may have filled it
  } catch (...) {
    fs::remove_all(hidden_, error);
    throw;
  }
  path_ = join_path(hidden_, "copy");
  removed_unfinished_ = fs::remove_all(path_, error) > 0 && !error;
  if (!error) fs::create_directory(path_, error);
  if (error) throw FileError("[fetch] cannot use " + path_ + ": " + error.message());
}

FetchedFolder::~FetchedFolder() {
  std::error_code ignored;
  fs::remove_all(hidden_, ignored);
}

void FetchedFolder::finish(const std::string& name) {
  std::error_code error;
  fs::rename(join_path(path_, name), out_, error);
  if (error) throw FileError("[fetch] cannot make " + out_ + ": " + error.message());
}

}  // namespace lockstep
