#include "lockstep/report/dashboard/dashboard.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/runs/store/run_store.h"

namespace lockstep::command {
namespace {

struct DashboardArguments {
  std::vector<std::string> runs;
  int port = 0;
};

// The runs of the store, and the folder runs if there is one.
std::vector<std::string> usual_folders() {
  std::vector<std::string> folders;
  const std::string here = std::filesystem::absolute("runs").string() + "/";
  if (const std::string store = default_store_folder(); !store.empty()) {
    try {
      for (const StoredRun& run : RunStore(store).runs()) {
        if (run.notes.archived || run.folder.starts_with(here)) continue;
        if (local_files().is_folder(run.folder)) folders.push_back(run.folder);
      }
    } catch (const Error& error) {
      std::fprintf(stderr, "note: the runs of the store are not shown: %s\n",
                   printable(error.what()).c_str());
    }
  }
  if (folders.empty() || local_files().is_folder("runs")) folders.emplace_back("runs");
  return folders;
}

int dashboard_command(const DashboardArguments& a) {
  DashboardOptions options{.folders = a.runs, .port = a.port, .store = default_store_folder()};
  if (options.folders.empty()) options.folders = usual_folders();
  for (const std::string& folder : options.folders) {
    if (local_files().is_folder(folder)) continue;
    throw InvalidArgument("[dashboard] there is no folder " + folder,
                          "name folders with runs by --runs");
  }
  catch_stop_signals();
  const Dashboard dashboard(options);
  print(dashboard.address() + "\n");
  std::fprintf(stderr,
               "Open this address in a browser of this machine. Ctrl-C ends the dashboard.\n");
  while (!stop_wanted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return 0;
}

}  // namespace

void add_dashboard(Commands& commands) {
  auto a = std::make_shared<DashboardArguments>();
  Subcommand sub = commands.add(
      "dashboard", "Show runs in a browser, live while they train",
      "Serves pages on 127.0.0.1: a table of runs with filter, tags and notes, runs side by side, "
      "and for each run curves that grow, time left, workers, log and a button that stops it. The "
      "printed address holds a random token; without it nothing is served. Ctrl-C ends the "
      "dashboard, not the runs.\n\n"
      "From another machine: `ssh -L 8123:127.0.0.1:8123 HOST`, then the printed address.",
      {{"lockstep dashboard", "of the runs in the store and in the folder runs"},
       {"lockstep dashboard --runs runs /data/runs --port 8123",
        "of two folders, on a fixed port"}},
      [a] { return dashboard_command(*a); });
  sub.add_option(
         "--runs", a->runs,
         "Folders of runs, or with runs in them (default: the store's runs, and the folder runs)")
      .type_name("DIR");
  sub.add_option("--port", a->port, "Port on 127.0.0.1 (default: any free one)")
      .type_name("N")
      .range(0, 65535);
}

}  // namespace lockstep::command
