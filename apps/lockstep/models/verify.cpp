#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "apps/lockstep/command.h"
#include "lockstep/base/text.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/compare_runs.h"
#include "lockstep/runs/folders/run_state.h"

namespace lockstep::command {
namespace {

struct VerifyArguments {
  std::string run;
  int64_t iteration = 0;
  int threads = 0;
  std::string initial_model;
};

struct DiffArguments {
  std::string a, b;
  int threads = 0;
  std::string initial_model_a, initial_model_b;
};

// Shows progress on a terminal at every tenth iteration. Empty if standard error is not a terminal.
std::function<void(int64_t, int64_t)> progress_of(const std::string& what) {
  if (!error_is_terminal()) return {};
  return [what](int64_t done, int64_t total) {
    if (done % 10 != 0 && done != total) return;
    std::fprintf(stderr, "\r\x1b[K%s: iteration %s of %s%s", what.c_str(),
                 format_count(done).c_str(), format_count(total).c_str(),
                 done == total ? "\r\x1b[K" : "");
    std::fflush(stderr);
  };
}

// Prints a note if the run is not finished, because the comparison then covers only part of it.
void note_unfinished(const std::string& run) {
  const RunState state = run_state(local_files(), run);
  if (state.status == RunStatus::none || state.status == RunStatus::finished) return;
  std::fprintf(stderr, "note: %s %s\n", run.c_str(), describe(state).c_str());
}

// What follows the last line of a receipt.
void note_rest(const std::string& note) {
  if (!note.empty()) std::fprintf(stderr, "note: %s\n", printable(note).c_str());
}

int verify_command(const VerifyArguments& a) {
  note_unfinished(a.run);
  const Verification v =
      verify_run(a.run, a.iteration, {a.threads, a.initial_model, progress_of("computing again")});
  note_rest(v.note);
  const std::string from = v.from > 0 ? fmt::format("the checkpoint after iteration {}", v.from)
                                      : std::string("the beginning");
  if (v.differs > 0) {
    print_table({{"iteration", format_count(v.iteration)},
                 {"computed from", from},
                 {"differs", fmt::format("iteration {}: {}", format_count(v.differs), v.what)}});
    return exit_failure;
  }
  print_table({{"iteration", format_count(v.iteration)},
               {"computed from", from},
               {"loss", fmt::format("{}, as in the receipt", v.line.loss)},
               {"digest", v.line.digest.to_string() + ", as in the receipt"}});
  return 0;
}

std::string difference_text(const TensorDifference& t) {
  if (std::isnan(t.largest)) return "of another size, or only in one";
  return fmt::format("{} of {} elements, by up to {:.3g}", format_count(t.different),
                     format_count(t.elements), t.largest);
}

int diff_command(const DiffArguments& a) {
  for (const std::string& run : {a.a, a.b}) note_unfinished(run);
  const RunDifference d = compare_runs(a.a, a.b, {a.threads, a.initial_model_a, progress_of(a.a)},
                                       {a.threads, a.initial_model_b, progress_of(a.b)});
  for (const std::string& note : d.notes) note_rest(note);
  if (d.iteration == 0 && d.what.empty()) {
    std::string text = fmt::format("equal in all {} common iterations", format_count(d.common));
    for (const auto& [run, more] : {std::pair{a.a, d.more_a}, {a.b, d.more_b}}) {
      if (more > 0) text += fmt::format("; {} has {} more", printable(run), format_count(more));
    }
    print(text + "\n");
    return 0;
  }
  if (d.iteration == 0) {
    print_table({{"first difference", "at the end, after all iterations"},
                 {"what", d.what},
                 {"why", d.why}});
    return exit_failure;
  }
  std::vector<std::pair<std::string, std::string>> rows{
      {"first difference",
       fmt::format("iteration {}, epoch {}", format_count(d.iteration), d.epoch)},
      {"what", d.what},
      {"why", d.why}};
  constexpr size_t most = 10;
  for (size_t i = 0; i < d.tensors.size() && i < most; ++i) {
    rows.emplace_back(d.tensors[i].name, difference_text(d.tensors[i]));
  }
  if (d.tensors.size() > most) {
    rows.emplace_back("...", fmt::format("{} more", d.tensors.size() - most));
  }
  print_table(rows);
  return exit_failure;
}

}  // namespace

void add_verify(Commands& commands) {
  auto a = std::make_shared<VerifyArguments>();
  Subcommand sub = commands.add(
      "verify", "Compute an iteration of a run again and compare it with the receipt",
      "One process computes from the newest checkpoint before the iteration, for any number of "
      "workers in the run. All iterations in between are compared. The run is only read. Exit code "
      "1 "
      "if there is a difference.",
      {{"lockstep verify runs/digits-1 --iteration 100", "check that it is the same"}},
      [a] { return verify_command(*a); });
  sub.add_option("run", a->run, "Folder of a run").required().type_name("RUN");
  sub.add_option("--iteration", a->iteration, "Number of the iteration")
      .required()
      .type_name("N")
      .range(1, int64_t{1} << 50);
  add_threads(sub, a->threads);
  sub.add_option("--initial-model", a->initial_model, "The model that the run started from")
      .type_name("MODEL")
      .not_empty();
}

void add_diff(Commands& commands) {
  auto a = std::make_shared<DiffArguments>();
  Subcommand sub = commands.add(
      "diff", "The first difference of two runs: the iteration, what differs and why",
      "Compares the receipts. The first iteration that differs is computed again for both runs. "
      "This "
      "shows the layers that differ, and whether each run matches its job. The runs are only read. "
      "Exit code 1 if they differ.",
      {{"lockstep diff runs/digits-1 runs/digits-2", "check that they are the same training"}},
      [a] { return diff_command(*a); });
  sub.add_option("a", a->a, "Folder of a run").required().type_name("RUN");
  sub.add_option("b", a->b, "Folder of another run").required().type_name("RUN");
  add_threads(sub, a->threads);
  sub.add_option("--initial-model-a", a->initial_model_a,
                 "The model that the first run started from")
      .type_name("MODEL")
      .not_empty();
  sub.add_option("--initial-model-b", a->initial_model_b,
                 "The model that the second run started from")
      .type_name("MODEL")
      .not_empty();
}

}  // namespace lockstep::command
