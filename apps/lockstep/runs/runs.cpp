#include "apps/lockstep/runs/runs.h"

#include <algorithm>
#include <map>
#include <memory>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/runs/store/run_filter.h"

namespace lockstep::command {
namespace {

struct RunsAction {
  int (*work)(const RunsArguments&);
  bool needs_runs;
  std::vector<std::string> options;  // that it uses
};

const std::map<std::string, RunsAction>& runs_actions() {
  static const std::map<std::string, RunsAction> all{
      {"list", {list_runs, false, {"where", "sort", "reverse", "columns", "all", "json", "csv"}}},
      {"show", {show_runs, true, {"json"}}},
      {"compare", {compare_stored_runs, false, {"where", "all", "json", "csv"}}},
      {"export", {export_runs, false, {"where", "all", "out"}}},
      {"tag", {tag_runs, true, {"add", "remove"}}},
      {"note", {note_runs, true, {"text"}}},
      {"archive", {archive_runs, true, {"undo"}}},
      {"rm", {remove_runs, true, {"files"}}},
      {"rebuild", {rebuild_runs, true, {}}}};
  return all;
}

void require_fitting_options(const RunsArguments& a, const RunsAction& action) {
  const std::pair<const char*, bool> given[] = {{"where", !a.where.empty()},
                                                {"sort", !a.sort.empty()},
                                                {"columns", !a.columns.empty()},
                                                {"add", !a.add.empty()},
                                                {"remove", !a.remove.empty()},
                                                {"text", a.text.has_value()},
                                                {"out", !a.out.empty()},
                                                {"all", a.all},
                                                {"json", a.json},
                                                {"csv", a.csv},
                                                {"undo", a.undo},
                                                {"files", a.files},
                                                {"reverse", a.reverse}};
  for (const auto& [name, is_given] : given) {
    const auto& known = action.options;
    if (!is_given || std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string all;
    for (const std::string& option : known) all += (all.empty() ? "--" : ", --") + option;
    throw UsageError("`lockstep runs " + a.action + "` has no option --" + name,
                     all.empty() ? "it has no options" : "its options: " + all);
  }
}

int runs_command(const RunsArguments& a) {
  const RunsAction& action = runs_actions().at(a.action);
  require_fitting_options(a, action);
  if (action.needs_runs && a.runs.empty()) {
    throw UsageError(
        "`lockstep runs " + a.action + "` needs " + (a.action == "rebuild" ? "a folder" : "a run"),
        a.action == "rebuild" ? "such as: lockstep runs rebuild runs"
                              : "a number that `lockstep runs list` shows, or a folder");
  }
  return action.work(a);
}

}  // namespace

std::string store_folder() {
  std::string folder = default_store_folder();
  if (folder.empty()) {
    throw InvalidArgument("[store] there is no folder for the run store: HOME is not set",
                          "set LOCKSTEP_HOME to a folder");
  }
  return folder;
}

RunStore open_store() { return RunStore(store_folder()); }

std::vector<StoredRun> chosen_runs(RunStore& store, const RunsArguments& a) {
  std::vector<StoredRun> runs;
  if (a.runs.empty()) {
    runs = store.runs();
    if (!a.all) std::erase_if(runs, [](const StoredRun& run) { return run.notes.archived; });
  }
  for (const std::string& name : a.runs) runs.push_back(store.find(name));
  for (StoredRun& run : runs) {
    if (run.state.status != RunStatus::running) continue;
    FileSystem& files = local_files();
    // Another run may have taken the folder.
    const std::string folder = local_folder(run);
    if (run_state(files, folder).status == RunStatus::none ||
        read_run_facts(files, folder).id != run.facts.id) {
      run.state = {RunStatus::interrupted, "its folder is gone"};
      continue;
    }
    run = read_stored_run(files, folder);
    run.number = store.record(run);
  }
  return a.where.empty() ? runs : RunFilter(a.where).of(runs);
}

void add_runs(Commands& commands) {
  auto a = std::make_shared<RunsArguments>();
  // The user may set the note to "". This value means that no note was given.
  const std::string not_given(1, '\0');
  auto text = std::make_shared<std::string>(not_given);
  Subcommand sub = commands.add(
      "runs", "List, compare and annotate the runs of this user",
      "`lockstep train` records every run in the run store: its options, data, state, metrics and "
      "files. The store is an index; the folders of the runs are complete without it.\n\n"
      "ACTION is one of: list (a table), show (all about a run), compare (only what differs), "
      "export (metrics by iteration as CSV), tag, note, archive (hide from list), rm (remove from "
      "the store; with --files also Lockstep's files in the folder), rebuild (add all runs in "
      "folders, as after a move; a damaged store is set aside).\n\n"
      "A filter compares fields: number, run (its name, by its folder), name (of its job), state, "
      "tag, note, created, seconds, iteration, "
      "epoch, host, device, sweep, trial; metrics such as validation.loss (the last value) and "
      "validation.loss.best; options such as training.momentum or momentum; variables of the job. "
      "Signs: = != < <= > >= and ~ (contains), joined by and, or, not and parentheses.",
      {{"lockstep runs list --where \"validation.loss < 0.5 and momentum = 0.9\"", "some runs"},
       {"lockstep runs list --sort validation.accuracy.best --reverse", "the best ones first"},
       {"lockstep runs compare 3 4", "what differs"},
       {"lockstep runs tag 3 4 --add good", "mark runs"},
       {"lockstep runs export 3 --out metrics.csv", "metrics by iteration"},
       {"lockstep runs rebuild runs", "record all runs in the folder runs again"}},
      [a, text, not_given] {
        RunsArguments arguments = *a;
        if (*text != not_given) arguments.text = *text;
        return runs_command(arguments);
      });
  std::string words;
  for (const auto& [name, unused] : runs_actions()) words += (words.empty() ? "" : "|") + name;
  sub.add_option("action", a->action, "What to do")
      .required()
      .type_name(words)
      .check([](const std::string& action) {
        std::vector<std::string> names;
        for (const auto& [name, unused] : runs_actions()) names.push_back(name);
        return runs_actions().contains(action)
                   ? ""
                   : "`" + action + "` is unknown; " + suggest(action, names);
      });
  sub.add_option("runs", a->runs, "Numbers or names from `list`, or folders").type_name("RUN");
  sub.add_option("--where", a->where, "list, compare, export: only runs that the filter keeps")
      .type_name("FILTER")
      .not_empty();
  sub.add_option("--sort", a->sort, "list: order by a field").type_name("FIELD").not_empty();
  sub.add_flag("--reverse", a->reverse, "list: the largest first");
  sub.add_option("--columns", a->columns, "list: fields to show, separated by commas")
      .type_name("FIELDS")
      .not_empty();
  sub.add_flag("--all", a->all, "list, compare, export: also archived runs");
  Option json = sub.add_flag("--json", a->json, "list, show, compare: print JSON");
  sub.add_flag("--csv", a->csv, "list, compare: print CSV").excludes(json);
  sub.add_option("--add", a->add, "tag: tags to add").one_value_each().type_name("TAG").not_empty();
  sub.add_option("--remove", a->remove, "tag: tags to remove").one_value_each().type_name("TAG");
  sub.add_option("--text", *text, "note: the text; \"\" removes the note").type_name("TEXT");
  sub.add_flag("--undo", a->undo, "archive: show the runs again");
  sub.add_flag("--files", a->files, "rm: also remove the files that Lockstep wrote");
  sub.add_option("--out", a->out, "export: the file (default: standard output)")
      .type_name("FILE")
      .not_empty();
}

}  // namespace lockstep::command
