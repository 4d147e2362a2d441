#include "lockstep/runs/folders/run_state.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "lockstep/engine/formats/model.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/jobs/networks/network_values.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/state/checkpoint.h"
#include "tests/runs/digits_run.h"

namespace lockstep {
namespace {

using testing::refusal;

constexpr const char* job_text = R"([data]
train = "digits"
validation_fraction = 0.2
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { type = "convolution2d", filters = 4, kernel = 5, stride = 4, name = "conv" },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "fully_connected", units = 10, name = "fc" },
  { type = "softmax" } ]
[training]
mini_batch_size = 20
max_epochs = 2
device = "cpu"
threads = 1
checkpoint_frequency = 1
checkpoint_frequency_unit = "iteration"
)";

class RunStates : public testing::DigitsRun {
 protected:
  RunStates() : DigitsRun(10, job_text) {}
  RunState state(const std::string& name) { return run_state(local_files(), folder + "/" + name); }
  RunResult stopped_after(int64_t iterations, const std::string& name) {
    RunOptions options = into(name);
    int64_t asked = 0;
    options.stop = [&asked, iterations] { return ++asked == iterations; };
    return run_job(job(), options);
  }
};

TEST_F(RunStates, AFolderWithoutARunHasNone) {
  EXPECT_EQ(state("nowhere").status, RunStatus::none);
  EXPECT_EQ(state("digits").status, RunStatus::none);
  EXPECT_EQ(state("job.toml").status, RunStatus::none);
  write("alone/state.json", R"({"lockstep.state":"1","state":"finished"})");
  EXPECT_EQ(state("alone").status, RunStatus::none);
}

TEST_F(RunStates, FinishedAndStoppedAreNotedWithReasonAndTime) {
  run_job(job(), into("whole"));
  EXPECT_EQ(state("whole").status, RunStatus::finished);
  EXPECT_EQ(state("whole").iteration, 8);
  EXPECT_EQ(state("whole").reason, "");
  EXPECT_EQ(state("whole").time.size(), std::string("2026-11-23T20:23:14Z").size());
  EXPECT_EQ(model_note(local_files(), folder + "/whole"), "");

  stopped_after(3, "part");
  EXPECT_EQ(state("part").status, RunStatus::stopped);
  EXPECT_EQ(state("part").iteration, 3);
  EXPECT_CONTAINS(state("part").reason, "by request");
  EXPECT_CONTAINS(model_note(local_files(), folder + "/part"), "was stopped after iteration 3");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(job(), into("part")); }),
                  "contains a run that was stopped after iteration 3");

  RunOptions options = into("counted");
  options.stop_after = 2;
  run_job(job(), options);
  EXPECT_EQ(state("counted").reason, "stop_after = 2");
  run_job(job({"max_time=0.000001"}), into("timed"));
  EXPECT_EQ(state("timed").status, RunStatus::stopped);
  EXPECT_CONTAINS(state("timed").reason, "max_time");
}

TEST_F(RunStates, TheModelOfAStoppedRunIsThatOfItsLastIteration) {
  const RunResult whole = run_job(job(), into("whole"));
  for (const int64_t last : {1, 4, 7}) {
    const std::string name = "part" + std::to_string(last);
    const RunResult part = stopped_after(last, name);
    ASSERT_EQ(part.training.last_iteration, last);
    Model model = load_model(local_files(), model_path(local_files(), folder + "/" + name));
    EXPECT_EQ(model.classes.size(), 10u);
    const auto saved = network_values(local_files(), part.checkpoint).tensors;
    Network of_checkpoint = build_network(job());
    of_checkpoint.initialize(1);
    set_values(of_checkpoint, saved, part.checkpoint);
    EXPECT_EQ(encode_model(of_checkpoint, model.classes),
              encode_model(model.network, model.classes));
    EXPECT_GT(evaluate(model.network, open_run_data(job()).validation).observations, 0);
    RunOptions options = into(name);
    options.resume = true;
    EXPECT_EQ(run_job(job(), options).training.digest, whole.training.digest);
    EXPECT_EQ(state(name).status, RunStatus::finished);
    for (const char* file : {"/model.safetensors", "/receipt.jsonl", "/confusion.json"}) {
      EXPECT_EQ(text(name + file), text(std::string("whole") + file)) << file;
    }
  }
}

TEST_F(RunStates, ARunIsRunningWhileItsProcessLivesAndInterruptedWhenItWasKilled) {
  int began[2];
  ASSERT_EQ(pipe(began), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RunOptions options = into("killed");
    options.stop = [&] {
      [[maybe_unused]] const ssize_t written = ::write(began[1], "x", 1);
      pause();
      return false;
    };
    try {
      run_job(job(), options);
    } catch (...) {
    }
    _exit(1);
  }
  char byte = 0;
  close(began[1]);
  ASSERT_EQ(::read(began[0], &byte, 1), 1);
  close(began[0]);
  EXPECT_EQ(state("killed").status, RunStatus::running);
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(job(), into("killed")); }),
                  "contains a run that is being trained | choose another folder with --out");
  EXPECT_CONTAINS(refusal<DataError>([&] { model_path(local_files(), folder + "/killed"); }),
                  "is being trained, and has no model yet | a run has a model when it has finished "
                  "or was stopped");
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(state("killed").status, RunStatus::interrupted);
  EXPECT_CONTAINS(text("killed/state.json"), "\"running\"");
  EXPECT_CONTAINS(refusal<DataError>([&] { model_path(local_files(), folder + "/killed"); }),
                  "--resume");
  RunOptions options = into("killed");
  options.resume = true;
  run_job(job(), options);
  EXPECT_EQ(state("killed").status, RunStatus::finished);
}

TEST_F(RunStates, AskingDoesNotKeepARunFromBeginning) {
  run_job(job(), into("out"));
  std::atomic<bool> over = false;
  std::thread asking([&] {
    while (!over) state("out");
  });
  RunOptions options = into("out");
  options.resume = true;
  for (int i = 0; i < 5; ++i) EXPECT_NO_THROW(run_job(job(), options));
  over = true;
  asking.join();
}

class Failing : public TrainingObserver {
 public:
  explicit Failing(int64_t after) : after_(after) {}
  void iteration(const IterationRecord& record) override {
    if (record.iteration == after_) throw DataError("[test] a disk fell\nover");
  }

 private:
  int64_t after_;
};

TEST_F(RunStates, AFailedRunKeepsItsLastSoundValuesAndGoesOn) {
  const RunResult whole = run_job(job(), into("whole"));
  Failing observer(5);
  RunOptions options = into("failed");
  options.observers = {&observer};
  EXPECT_THROW(run_job(job(), options), DataError);
  EXPECT_EQ(state("failed").status, RunStatus::failed);
  EXPECT_CONTAINS(state("failed").reason, "a disk fell");
  EXPECT_CONTAINS(model_note(local_files(), folder + "/failed"), "failed after iteration");
  // The checkpoint after iteration 4 is the newest.
  EXPECT_NO_THROW(load_model(local_files(), model_path(local_files(), folder + "/failed")));
  options.observers.clear();
  options.resume = true;
  EXPECT_EQ(run_job(job(), options).training.digest, whole.training.digest);
  EXPECT_EQ(text("failed/model.safetensors"), text("whole/model.safetensors"));
}

TEST_F(RunStates, ATrainingThatDivergesLeavesAModelOnlyOfFiniteValues) {
  const std::vector<std::string> settings{"initial_learning_rate=1e6", "max_epochs=20"};
  const std::string whole(job_text);
  const size_t layers = whole.find("layers = ["), training = whole.find("[training]");
  write("linear.toml",
        whole.substr(0, layers) +
            "layers = [ { type = \"fully_connected\", units = 10 }, { type = \"softmax\" } ]\n" +
            whole.substr(training));
  const Job linear = read_job(local_files(), folder + "/linear.toml", settings);
  EXPECT_CONTAINS(refusal<Error>([&] { run_job(linear, into("linear")); }),
                  "is not a finite number");
  EXPECT_EQ(state("linear").status, RunStatus::failed);
  const std::string model = folder + "/linear/model.safetensors";
  ASSERT_TRUE(local_files().exists(model));
  EXPECT_NO_THROW(require_finite(network_values(local_files(), model).tensors, model));
  // A ReLU turns NaN into zeros: the loss stays finite, the parameters do not.
  EXPECT_CONTAINS(refusal<Error>([&] { run_job(job(settings), into("hidden")); }),
                  "that are not finite, although the loss is finite");
  EXPECT_EQ(state("hidden").status, RunStatus::failed);
  const std::string last = folder + "/hidden/model.safetensors";
  ASSERT_TRUE(local_files().exists(last));
  EXPECT_NO_THROW(require_finite(network_values(local_files(), last).tensors, last));
}

TEST_F(RunStates, ARefusedResumeLeavesTheStateAsItWas) {
  stopped_after(3, "part");
  const std::string before = text("part/state.json"), model = text("part/model.safetensors");
  RunOptions options = into("part");
  options.resume = true;
  EXPECT_THROW(run_job(job({"momentum=0.5"}), options), InvalidArgument);
  EXPECT_EQ(text("part/state.json"), before);
  // Only the trainer can find this: changed images.
  std::filesystem::remove(folder + "/digits/3/4.png");
  std::filesystem::copy_file(folder + "/digits/4/4.png", folder + "/digits/3/4.png");
  EXPECT_THROW(run_job(job(), options), InvalidArgument);
  EXPECT_EQ(text("part/state.json"), before);
  EXPECT_EQ(text("part/model.safetensors"), model);
}

TEST_F(RunStates, FoldersOfEarlierVersionsAndDamagedNotesAreUnderstood) {
  run_job(job(), into("whole"));
  stopped_after(3, "part");
  for (const std::string note :
       {"", "{", "[]", "{\"lockstep.state\":\"2\",\"state\":\"x\"}", "{\"lockstep.state\":\"1\"}",
        "{\"lockstep.state\":\"1\",\"state\":\"odd\",\"reason\":\"\",\"time\":\"\",\"iteration\":"
        "0}",
        "{\"lockstep.state\":\"1\",\"state\":\"stopped\",\"reason\":3,\"time\":\"\",\"iteration\":"
        "0}"}) {
    SCOPED_TRACE(note);
    for (const std::string name : {"whole", "part"}) write(name + "/state.json", note);
    if (note.empty()) {
      std::filesystem::remove(folder + "/whole/state.json");
      std::filesystem::remove(folder + "/part/state.json");
    }
    std::filesystem::remove(folder + "/part/model.safetensors");
    EXPECT_EQ(state("whole").status, RunStatus::finished);
    EXPECT_EQ(state("part").status, RunStatus::interrupted);
  }
  RunOptions options = into("part");
  options.resume = true;
  run_job(job(), options);
  EXPECT_EQ(text("part/model.safetensors"), text("whole/model.safetensors"));
}

TEST_F(RunStates, NumberedFoldersAreDifferentForAll) {
  std::set<std::string> folders;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        const std::string made = make_numbered_folder(folder + "/runs/job");
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(folders.insert(made).second) << made;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(folders.size(), 160u);
  EXPECT_TRUE(folders.contains(folder + "/runs/job-160"));
}

TEST_F(RunStates, AnInitialModelMayBeAFileARunOrACheckpoint) {
  const RunResult first = stopped_after(4, "first");
  std::set<std::string> digests;
  for (const std::string& from :
       {folder + "/first", folder + "/first/model.safetensors", first.checkpoint}) {
    RunOptions options =
        into("from" + std::to_string(digests.size()) + std::to_string(from.size()));
    options.initial_model = from;
    digests.insert(run_job(job(), options).training.digest.to_string());
  }
  EXPECT_EQ(digests.size(), 1u) << "the same values";
  write("wider.toml", std::string(job_text).replace(std::string(job_text).find("filters = 4"), 11,
                                                    "filters = 5"));
  const Job wider = read_job(local_files(), folder + "/wider.toml");
  for (const std::string& from : {folder + "/first", first.checkpoint}) {
    EXPECT_CONTAINS(refusal<InvalidArgument>([&] { plan_job(wider, {.initial_model = from}); }),
                    "do not fit the job's network: it has conv.");
  }
  EXPECT_CONTAINS(
      refusal<DataError>([&] { plan_job(job(), {.initial_model = folder + "/digits"}); }),
      "contains no model.safetensors");
  EXPECT_THROW(plan_job(job(), {.initial_model = folder + "/nowhere"}), FileError);
  std::string damaged =
      text("first/checkpoints/" + std::filesystem::path(first.checkpoint).filename().string());
  damaged[damaged.size() - 9] = static_cast<char>(damaged[damaged.size() - 9] ^ 1);
  const std::string path = write("damaged.safetensors", damaged);
  EXPECT_CONTAINS(refusal<DataError>([&] { plan_job(job(), {.initial_model = path}); }),
                  "it is damaged");
  EXPECT_CONTAINS(refusal<DataError>([&] { load_model(local_files(), first.checkpoint); }),
                  "is a checkpoint of a training, not a model");
}

}  // namespace
}  // namespace lockstep
