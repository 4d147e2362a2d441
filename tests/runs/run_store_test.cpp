#include "lockstep/runs/store/run_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/store/run_filter.h"
#include "lockstep/train/records/training_start.h"
#include "lockstep/train/state/receipt.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Store : public ::testing::Test {
 protected:
  std::string home() const { return folder_ + "/home"; }
  std::string path() const { return home() + "/" + store_file_name; }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories(fs::path(file).parent_path());
    std::ofstream(file) << text;
  }

  // The folder of a finished run.
  std::string run(const std::string& name, double loss = 0.5) {
    const std::string folder = folder_ + "/runs/" + name;
    write(
        folder + "/job.json",
        R"({"name":"digits","training":{"momentum":0.9,"solver":"sgdm"},"network":{"layers":[{"name":"fc","type":"fully_connected","units":10}]}})");
    write(folder + "/log.jsonl",
          R"({"iteration":1,"epoch":1,"loss":2.5,"accuracy":0.1})"
          "\n"
          R"({"iteration":1,"epoch":1,"validation_loss":0.25,"validation_accuracy":0.75})"
          "\n"
          R"({"event":"notice","text":"x"})"
          "\n"
          R"({"iteration":2,"epoch":2,"loss":)" +
              std::to_string(loss) + R"(,"accuracy":0.5})" + "\n" +
              R"({"iteration":2,"epoch":2,"validation_loss":)" + std::to_string(loss) +
              R"(,"validation_accuracy":0.5,"validation_metrics":{"f1":0.5}})" + "\n" +
              R"({"iteration":3,"ep)");  // cut by a kill
    write_run_state(local_files(), folder, {RunStatus::finished, "", "", 2});
    RunFacts facts;
    facts.id = make_run_id();
    facts.created = "2026-11-23T20:23:14Z";
    facts.variables = {{"depth", "2"}};
    facts.given = {"training.momentum"};
    facts.scores = {{"test.accuracy", 0.875}};
    write_run_facts(local_files(), folder, facts);
    return folder;
  }
  int64_t record(RunStore& store, const std::string& folder) {
    return store.record(read_stored_run(local_files(), folder));
  }

  const testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path;
};

double number_of(const StoredRun& run, const std::string& field) {
  const auto values = values_of(run, field);
  return values.size() == 1 ? std::get<double>(values[0]) : -1;
}

TEST_F(Store, KeepsWhatTheFolderSays) {
  RunStore store(home());
  record(store, run("a"));
  const StoredRun a = store.runs().at(0);
  EXPECT_EQ(a.name, "digits");
  EXPECT_EQ(a.state.status, RunStatus::finished);
  EXPECT_EQ(a.epoch, 2);
  EXPECT_EQ(a.facts.created, "2026-11-23T20:23:14Z");
  EXPECT_EQ(number_of(a, "validation.loss"), 0.5);
  EXPECT_EQ(number_of(a, "validation.loss.best"), 0.25);
  EXPECT_EQ(number_of(a, "validation.accuracy.best"), 0.75);
  EXPECT_EQ(number_of(a, "validation.f1"), 0.5);
  EXPECT_EQ(number_of(a, "test.accuracy"), 0.875);
  EXPECT_EQ(a.facts.given, std::vector<std::string>{"training.momentum"});
  EXPECT_EQ(number_of(a, "depth"), 2);
  EXPECT_EQ(number_of(a, "momentum"), 0.9);
  EXPECT_EQ(number_of(a, "network.layers.fc.units"), 10);
  EXPECT_FALSE(a.artifacts.empty());
  EXPECT_EQ(to_text(stored_run_of(to_text(a))), to_text(a));
  std::string earlier = to_text(a);
  earlier.replace(earlier.find("artifacts"), 9, "artefacts");  // as earlier versions wrote it
  EXPECT_EQ(to_text(stored_run_of(earlier)), to_text(a));
}

// A run that is read again from time to time says what its folder says.
TEST_F(Store, FollowsAFolder) {
  const std::string a = run("a");
  StoredRunFollower follower(a);
  const auto same = [&] {
    StoredRun read = read_stored_run(local_files(), a);
    read.artifacts.clear();
    EXPECT_EQ(to_text(follower.read()), to_text(read));
    EXPECT_EQ(follower.read().notes, read.notes);
  };
  same();
  std::ofstream(a + "/log.jsonl", std::ios::app) << R"(och":2,"loss":0.125}
{"iteration":4,"epoch":3,"validation_loss":0.0625,"validation_accuracy":0.5}
)";
  std::ofstream(a + "/receipt.jsonl") << "{\"chain\":\"abc\"}\n{\"chain";
  write_run_notes(local_files(), a, {{"good"}, "note", false});
  same();
  EXPECT_EQ(number_of(follower.read(), "validation.loss.best"), 0.0625);
  EXPECT_EQ(follower.read().receipt, "abc");
  // As a training writes it, in another order, and as nobody does.
  for (const std::string log :
       {R"({"iteration":1,"epoch":1,"in_epoch":1,"loss":0.30000000000000004,"accuracy":0.5,"x":1})",
        R"({"iteration":1,"epoch":1,"in_epoch":1,"loss":3e-1,"accuracy":null,"x":1})",
        R"({"iteration":1,"epoch":1,"in_epoch":1,"loss":null,"accuracy":0.5,"x":1})",
        R"({"iteration":1,"epoch":1,"in_epoch":1,"loss":0.25,"accuracy":0.5,"x":1)",
        R"({"epoch":1,"iteration":1,"in_epoch":1,"loss":0.25,"accuracy":0.5,"x":1})",
        R"({"iteration":1,"epoch":1,"in_epoch":1,"loss":inf,"accuracy":0.5,"x":1})"}) {
    write(a + "/log.jsonl", log + "\n");
    const auto parsed = nlohmann::json::parse(log, nullptr, false);
    const auto expect = [&](const char* key, const StoredRun& read) {
      const auto found = values_of(read, std::string("training.") + key);
      if (parsed.is_object() && parsed[key].is_number()) {
        ASSERT_EQ(found.size(), 1u) << log;
        EXPECT_EQ(std::get<double>(found[0]), parsed[key].get<double>()) << log;
      } else {
        EXPECT_TRUE(found.empty()) << log;
      }
    };
    for (const char* key : {"loss", "accuracy"}) {
      expect(key, read_stored_run(local_files(), a));
      expect(key, StoredRunFollower(a).read());
    }
  }
  write(a + "/log.jsonl", "{\"iteration\":1,\"epoch\":1,\"loss\":7}\n");
  write(a + "/job.json", R"({"name":"other"})");
  same();
  EXPECT_EQ(number_of(follower.read(), "training.loss"), 7);
  // Two texts of one length at one moment of the system's clock.
  for (const std::string text : {"one", "two"}) {
    write_run_notes(local_files(), a, {{"good"}, text, false});
    fs::last_write_time(a + "/" + run_notes_name, fs::file_time_type());
    EXPECT_EQ(follower.read().notes.note, text);
  }
  fs::remove_all(a);
  EXPECT_EQ(follower.read().state.status, RunStatus::none);
}

// A log's iterations are read without a general parser, which is slow, as long as they begin as a
// training writes them. The general parser would refuse these lines, whose ends are damaged.
TEST_F(Store, ReadsIterationsAsATrainingWritesThem) {
  for (const double accuracy : {0.5, std::nan("")}) {
    const std::string a = run("a");
    fs::remove(a + "/log.jsonl");
    ReceiptWriter writer(local_files(), a);
    writer.start({});
    IterationRecord record;
    record.iteration = record.epoch = record.in_epoch = 1;
    record.loss = 0.30000000000000004;
    record.accuracy = accuracy;
    writer.iteration(record);
    writer.finish();
    std::string log = read_text(local_files(), a + "/log.jsonl");
    const size_t begin = log.find("{\"iteration\":1,"), end = log.find('}', begin);
    ASSERT_NE(begin, std::string::npos) << log;
    std::string line = log.substr(begin, end + 1 - begin);
    line.replace(line.rfind(':'), std::string::npos, ":}");
    ASSERT_TRUE(nlohmann::json::parse(line, nullptr, false).is_discarded());
    write(a + "/log.jsonl", line + "\n");
    const StoredRun read = read_stored_run(local_files(), a);
    EXPECT_EQ(number_of(read, "training.loss"), 0.30000000000000004) << line;
    EXPECT_EQ(values_of(read, "training.accuracy").size(), std::isnan(accuracy) ? 0u : 1u) << line;
  }
}

// Jobs, notes and paths are nobody else's business, whatever the umask is.
TEST_F(Store, IsPrivate) {
  const auto mode = [](const std::string& file) {
    return static_cast<unsigned>(fs::status(file).permissions()) & 0777u;
  };
  const mode_t before = ::umask(0);
  {
    RunStore store(home());
    record(store, run("a"));
    for (const char* part : {"", "-wal", "-shm"}) EXPECT_EQ(mode(path() + part), 0600u) << part;
  }
  EXPECT_EQ(mode(home()), 0700u);
  // A store that an earlier version has made.
  fs::permissions(path(), static_cast<fs::perms>(0644));
  { RunStore{home()}; }
  EXPECT_EQ(mode(path()), 0600u);
  // One that a group shares.
  fs::permissions(path(), static_cast<fs::perms>(0660));
  { RunStore{home()}; }
  EXPECT_EQ(mode(path()), 0660u);
  ::umask(before);
}

// A batch job's folder has a job.json and a state.json too.
TEST_F(Store, TheFolderOfABatchJobIsNotARun) {
  const std::string job = folder_ + "/jobs/1";
  write(job + "/batch.json", "{}");
  write(job + "/job.json", "{}");
  write(job + "/state.json", "{}");
  EXPECT_EQ(run_state(local_files(), job).status, RunStatus::none);
  EXPECT_THROW(read_stored_run(local_files(), job), InvalidArgument);
}

// The first entries had the facts of run.json among their own fields, and variables as texts.
TEST_F(Store, ReadsEntriesOfTheFirstForm) {
  const StoredRun run = stored_run_of(
      R"({"folder":"/r","name":"n","state":"finished","reason":"","time":"","state_iteration":2,)"
      R"("iteration":2,"epoch":1,"receipt":"","id":"7","created":"c","host":"h","version":"v",)"
      R"("device":"cpu","threads":3,"workers":1,"iterations":4,"iterations_per_epoch":2,)"
      R"("seconds":1.5,"data":"d","sweep":"s","trial":5,"variables":{"depth":"2","kind":"\"a\""},)"
      R"("fingerprint":{"processor":"p"},"scores":{"test.loss":0.5},"options":{"training.seed":"3"},)"
      R"("metrics":{},"artifacts":{}})");
  EXPECT_EQ(run.facts.id, "7");
  EXPECT_EQ(run.facts.threads, 3);
  EXPECT_EQ(run.facts.trial, 5);
  EXPECT_EQ(run.facts.seconds, 1.5);
  EXPECT_EQ(number_of(run, "depth"), 2);
  ASSERT_EQ(run.facts.variables.size(), 2u);
  EXPECT_EQ(run.facts.variables[1].second, "\"a\"");
  EXPECT_EQ(run.facts.scores.at(0).value, 0.5);
  EXPECT_EQ(to_text(stored_run_of(to_text(run))), to_text(run));
}

TEST_F(Store, KnowsRunsAgainAfterMovesAndReplacements) {
  RunStore store(home());
  const std::string a = run("a");
  const int64_t number = record(store, a);
  EXPECT_EQ(record(store, a), number);
  fs::rename(a, folder_ + "/moved");
  EXPECT_EQ(record(store, folder_ + "/moved"), number);
  EXPECT_EQ(store.runs().size(), 1u);
  fs::copy(folder_ + "/moved", a, fs::copy_options::recursive);
  const int64_t copy = record(store, a);
  EXPECT_NE(copy, number);
  fs::remove_all(a);
  const int64_t other = record(store, run("a"));  // another run in the same folder
  EXPECT_NE(other, copy);
  EXPECT_EQ(store.runs().size(), 2u);
}

TEST_F(Store, NotesAreInTheFolderToo) {
  const std::string a = run("a");
  const std::string hostile = "'); DROP TABLE runs; -- <script>\n\x1b[31m \xf0\x9f\x92\xa9 \"";
  {
    RunStore store(home());
    const int64_t number = record(store, a);
    store.change_notes(number, [&](RunNotes& notes) {
      notes.tags = {hostile, "good"};
      notes.note = hostile;
    });
    EXPECT_EQ(store.find(a).notes.note, hostile);
  }
  fs::remove_all(home());
  RunStore store(home());
  record(store, a);
  EXPECT_EQ(store.find(a).notes.note, hostile);
  EXPECT_EQ(store.find(a).notes.tags.at(0), hostile);
}

TEST_F(Store, SeveralProcessesWriteAtOnce) {
  constexpr int processes = 4, runs_each = 10;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 1;
      try {
        for (int i = 0; i < runs_each; ++i) {
          RunStore store(home());  // the first ones make it together
          record(store, run(std::to_string(p) + "-" + std::to_string(i)));
        }
        status = 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(RunStore(home()).runs().size(), size_t{processes * runs_each});
}

TEST_F(Store, SurvivesKillsAtAnyMoment) {
  const std::string a = run("a");
  { RunStore{home()}; }
  for (int kill = 0; kill < 30; ++kill) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) {
        RunStore store(home());
        const int64_t number = record(store, a);
        store.change_notes(number, [](RunNotes& notes) { notes.note += "x"; });
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + 2 * kill));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(set_damaged_store_aside(home()), "");
    RunStore store(home());
    ASSERT_LE(store.runs().size(), 1u);
    record(store, a);  // it is not locked
    EXPECT_EQ(store.find(a).notes, read_run_notes(local_files(), a));
  }
}

TEST_F(Store, SaysThatItIsDamaged) {
  const std::string a = run("a");
  record(*std::make_unique<RunStore>(home()), a);
  write(path(), std::string(5000, 'x'));
  for (const char* part : {"-wal", "-shm"}) fs::remove(path() + part);
  try {
    RunStore store(home());
    FAIL() << "it was opened";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("is damaged"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("runs rebuild"), std::string::npos);
  }
  EXPECT_EQ(set_damaged_store_aside(home()), path() + ".damaged-1");
  EXPECT_EQ(RunStore(home()).runs().size(), 0u);
}

TEST_F(Store, NoDamageIsOverlooked) {
  {
    RunStore store(home());
    for (int i = 0; i < 20; ++i) record(store, run(std::to_string(i)));
  }
  std::ifstream in(path(), std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), {});
  for (size_t page = 0; page * 4096 < sound.size(); ++page) {
    std::string damaged = sound;
    for (size_t i = 0; i < 512; ++i) damaged[page * 4096 + i] ^= 0x5a;
    write(path(), damaged);
    for (const char* part : {"-wal", "-shm"}) fs::remove(path() + part);
    try {
      RunStore store(home());
      store.runs();
      for (StoredRun& r : store.runs()) store.record(r);
    } catch (const Error&) {  // never another exception, and no crash
    }
    fs::remove(path());
  }
}

TEST_F(Store, RefusesALaterVersion) {
  { RunStore{home()}; }
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &handle), SQLITE_OK);
  sqlite3_exec(handle, "PRAGMA user_version = 7", nullptr, nullptr, nullptr);
  sqlite3_close(handle);
  try {
    RunStore store(home());
    FAIL() << "it was opened";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("later version of Lockstep (schema 7"),
              std::string::npos);
  }
  EXPECT_THROW(set_damaged_store_aside(home()), Unsupported);
  EXPECT_TRUE(fs::exists(path()));
}

TEST_F(Store, WaitsForALockOnlySoLong) {
  { RunStore{home()}; }
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &handle), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(handle, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const std::string a = run("a");
  RunStore store(home(), 0.2);
  EXPECT_THROW(record(store, a), Timeout);
  sqlite3_exec(handle, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(handle);
  EXPECT_EQ(record(store, a), 1);
}

std::vector<StoredRun> filtered(const std::string& text) {
  StoredRun a, b;
  a.number = 1;
  a.name = "digits big";
  a.state.status = RunStatus::finished;
  a.facts.variables = {{"depth", "2"}};
  a.options = {{"training.momentum", "0.9"}, {"x.seed", "1"}, {"y.seed", "2"}};
  a.metrics = {{"validation.loss", 0.4, 0.3, 9, 5}};
  a.notes.tags = {"good", "two words"};
  b = a;
  b.number = 2;
  b.name = "other";
  b.state.status = RunStatus::failed;
  b.facts.variables = {{"depth", "3"}};
  b.metrics.clear();
  b.notes.tags.clear();
  return RunFilter(text).of({a, b});
}

std::string kept(const std::string& text) {
  std::string numbers;
  for (const StoredRun& run : filtered(text)) numbers += std::to_string(run.number);
  return numbers;
}

TEST(RunFilter, Compares) {
  EXPECT_EQ(kept("validation.loss < 0.5 and depth = 2"), "1");
  EXPECT_EQ(kept("validation.loss<0.4"), "");
  EXPECT_EQ(kept("validation.loss.best<=0.3"), "1");
  EXPECT_EQ(kept("depth >= 2 and momentum == 0.9"), "12");
  EXPECT_EQ(kept("depth != 2"), "2");
  EXPECT_EQ(kept("state = failed or depth = 2"), "12");
  EXPECT_EQ(kept("not (state = failed or depth = 3)"), "1");
  EXPECT_EQ(kept("not state = failed and depth > 0"), "1");
  EXPECT_EQ(kept("name = 'digits big'"), "1");
  EXPECT_EQ(kept("name ~ dig"), "1");
  EXPECT_EQ(kept("tag = \"two words\""), "1");
  EXPECT_EQ(kept("tag != good"), "2");
  EXPECT_EQ(kept("validation.loss"), "1");
  EXPECT_EQ(kept("number > 1"), "2");
}

TEST(RunFilter, SaysWhatIsWrong) {
  for (const char* text :
       {"", "depth =", "= 2", "depth = 2 and", "(depth = 2", "depth = 2)", "depth 2", "depth =! 2",
        "depth = 'x", "and", "depth < > 2", "depth = 2; DROP TABLE runs", "not", "()"}) {
    try {
      filtered(text);
      ADD_FAILURE() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("[filter]"), std::string::npos) << text;
    }
  }
  EXPECT_THROW(filtered(std::string(100'000, '(')), InvalidArgument);
  try {
    filtered("momentun > 0.5");
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.hint().find("`momentum`"), std::string::npos) << error.hint();
  }
  EXPECT_THROW(filtered("seed = 1"), InvalidArgument);  // of two options
}

}  // namespace
}  // namespace lockstep
