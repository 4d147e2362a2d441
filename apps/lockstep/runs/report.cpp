#include <cstdio>
#include <memory>

#include "apps/lockstep/command.h"
#include "lockstep/report/pages/run_page.h"
#include "lockstep/report/pages/sweep_page.h"

namespace lockstep::command {

void add_report(Commands& commands) {
  auto runs = std::make_shared<std::vector<std::string>>();
  Subcommand sub = commands.add(
      "report", "Write the report of a run or a sweep: one page that opens offline",
      "Writes report.html into the folder of each run, as `lockstep train` does at the end: "
      "curves, "
      "confusion, the worst-classified images, network, options. The page is one self-contained "
      "file. A run that is not finished has a report of what it has done so far.",
      {{"lockstep report runs/digits-1", "write runs/digits-1/report.html"}}, [runs] {
        for (const std::string& run : *runs)
          print((holds_sweep(run) ? write_sweep_report(run) : write_report(run)) + "\n");
        return 0;
      });
  sub.add_option("runs", *runs, "Folders of runs or sweeps").required().type_name("RUN");
}

}  // namespace lockstep::command
