// Changes of the run store: tag, note, archive, rm, rebuild.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/lockstep/command.h"
#include "apps/lockstep/runs/runs.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/storage/object_store.h"

namespace lockstep::command {
namespace {

void change_all(const RunsArguments& a, const std::function<void(RunNotes&)>& change) {
  RunStore store = open_store();
  std::vector<int64_t> numbers;  // found before anything is changed
  for (const std::string& name : a.runs) numbers.push_back(store.find(name).number);
  for (const int64_t number : numbers) store.change_notes(number, change);
}

void require_text(const std::string& text, const char* what, size_t most) {
  if (!is_utf8(text)) {
    throw InvalidArgument(std::string("[runs] the ") + what + " is not valid UTF-8");
  }
  if (text.size() > most) {
    throw InvalidArgument(fmt::format("[runs] the {} has {} bytes, more than {}", what,
                                      format_count(static_cast<int64_t>(text.size())),
                                      format_count(static_cast<int64_t>(most))));
  }
}

// Removes the files that Lockstep writes, and the folder if nothing else is in it.
void remove_files(const StoredRun& run) {
  FileSystem& files = local_files();
  if (storage::is_address(run.folder)) {
    throw Unsupported(
        "[runs] the files of run " + std::to_string(run.number) + " are in " + run.folder +
            ", where --files removes nothing",
        "use `lockstep runs rm` without --files, and remove the objects with a tool for the store");
  }
  const RunState state = run_state(files, run.folder);
  if (state.status == RunStatus::none) return;
  if (read_run_facts(files, run.folder).id != run.facts.id) {
    throw InvalidArgument("[runs] " + run.folder + " now contains another run",
                          "lockstep runs rebuild " + run.folder);
  }
  if (state.status == RunStatus::running) {
    throw InvalidArgument("[runs] " + run.folder + " is running",
                          "stop it first: Ctrl-C where it runs, or the button of its page");
  }
  std::error_code failed;
  const std::string checkpoints = join_path(run.folder, "checkpoints");
  if (files.is_folder(checkpoints)) {
    for (const std::string& name : files.list(checkpoints)) {
      if (name.ends_with(".checkpoint") || name.ends_with(".safetensors") ||
          name.ends_with(".damaged") || name.ends_with(".tmp")) {
        files.remove(join_path(checkpoints, name));
      }
    }
    std::filesystem::remove(checkpoints, failed);
  }
  // job.json is last: an interrupted removal is still a run.
  for (const char* name :
       {run_model_name, "initial.safetensors", "receipt.jsonl", "log.jsonl", "observations",
        "confusion.json", "predictions.json", "report.html", "profile.json", "trace.json",
        run_notes_name, run_facts_name, run_state_name, "job.json", run_lock_name}) {
    files.remove(join_path(run.folder, name));
  }
  if (!std::filesystem::remove(run.folder, failed) && files.exists(run.folder)) {
    std::fprintf(stderr, "note: %s contains other files and stays\n",
                 printable(run.folder).c_str());
  }
}

}  // namespace

int tag_runs(const RunsArguments& a) {
  if (a.add.empty() && a.remove.empty()) {
    throw UsageError("`lockstep runs tag` needs --add TAG or --remove TAG", "");
  }
  constexpr size_t most_bytes = 200;
  for (const std::string& tag : a.add) require_text(tag, "tag", most_bytes);
  change_all(a, [&](RunNotes& notes) {
    std::vector<std::string>& tags = notes.tags;
    tags.insert(tags.end(), a.add.begin(), a.add.end());
    std::sort(tags.begin(), tags.end());
    tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
    for (const std::string& tag : a.remove) std::erase(tags, tag);
  });
  return 0;
}

int note_runs(const RunsArguments& a) {
  if (!a.text) throw UsageError("`lockstep runs note` needs --text TEXT", "");
  constexpr size_t most_bytes = 100'000;
  require_text(*a.text, "note", most_bytes);
  change_all(a, [&](RunNotes& notes) { notes.note = *a.text; });
  return 0;
}

int archive_runs(const RunsArguments& a) {
  change_all(a, [&](RunNotes& notes) { notes.archived = !a.undo; });
  return 0;
}

int remove_runs(const RunsArguments& a) {
  RunStore store = open_store();
  std::vector<StoredRun> runs;
  for (const std::string& name : a.runs) runs.push_back(store.find(name));
  for (const StoredRun& run : runs) {
    if (a.files) remove_files(run);
    store.remove(run.number);
  }
  return 0;
}

int rebuild_runs(const RunsArguments& a) {
  FileSystem& files = local_files();
  for (const std::string& folder : a.runs) {
    if (!files.is_folder(folder)) throw FileError("[runs] " + folder + " is not a folder");
  }
  const std::string aside = set_damaged_store_aside(store_folder());
  if (!aside.empty()) {
    std::fprintf(stderr, "note: the store was damaged and is now %s\n", printable(aside).c_str());
  }
  RunStore store = open_store();
  int64_t found = 0;
  const auto record = [&](const std::string& folder) {
    if (run_state(files, folder).status == RunStatus::none) return false;
    store.record(read_stored_run(files, folder));
    ++found;
    return true;
  };
  for (const std::string& top : a.runs) {
    if (record(top)) continue;
    std::error_code failed;
    const auto skip = std::filesystem::directory_options::skip_permission_denied;
    for (std::filesystem::recursive_directory_iterator at(top, skip, failed), end;
         !failed && at != end; at.increment(failed)) {
      std::error_code gone;
      if (at->is_symlink(gone) || !at->is_directory(gone)) continue;
      if (record(at->path().string())) at.disable_recursion_pending();
    }
    if (failed) throw FileError("[runs] cannot read " + top + ": " + failed.message());
  }
  print(fmt::format("{} {} recorded\n", format_count(found), found == 1 ? "run" : "runs"));
  return 0;
}

}  // namespace lockstep::command
