// Jobs with images that are damaged, missing, or of other sizes than the network's input.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/run.h"
#include "lockstep/train/options/solver_info.h"
#include "lockstep/train/options/unused_options.h"
#include "lockstep/train/records/observer.h"
#include "tests/runs/support.h"

namespace lockstep {
namespace {

using testing::refusal;

constexpr const char* classifier = R"([data]
train = "digits"
[network]
input = { height = 20, width = 24, channels = 1 }
layers = [
  { type = "convolution2d", filters = 4, kernel = 5, stride = 3 },
  { type = "relu" },
  { type = "fully_connected", units = 3 },
  { type = "softmax" } ]
[training]
mini_batch_size = 10
max_epochs = 2
device = "cpu"
threads = 2
checkpoint_frequency = 2
)";

class Images : public testing::WithFolder {
 protected:
  Images() {
    std::vector<int64_t> taken;  // 12 of each of three digits
    for (int64_t i = 0; i < 36; ++i) taken.push_back(i / 12 * 1000 + i % 12);
    for (const std::string& name : std::vector<std::string>{"digits", "held"}) {
      const auto some = subset(builtin_digits(), taken);
      // Unused digits would become empty folders.
      export_as_folder(*some, folder + "/" + name);
      for (char c = '3'; c <= '9'; ++c) std::filesystem::remove(folder + "/" + name + "/" + c);
    }
    job_path = write("job.toml", classifier);
  }
  Job job(std::vector<std::string> settings = {}) {
    return read_job(local_files(), job_path, settings);
  }
  RunData open(const std::vector<std::string>& settings) { return open_run_data(job(settings)); }
  RunOptions into(const std::string& name) {
    RunOptions options;
    options.folder = folder + "/" + name;
    return options;
  }
  std::string text(const std::string& name) {
    return read_text(local_files(), folder + "/" + name);
  }
  void copy(const std::string& from, const std::string& to) const {
    std::filesystem::create_directories(std::filesystem::path(folder + "/" + to).parent_path());
    std::filesystem::copy_file(folder + "/" + from, folder + "/" + to);
  }
  // Makes one bad image of each kind. Returns their number.
  size_t spoil() {
    write("digits/0/a_empty.png", "");
    write("digits/0/b_text.jpg", "this is not an image");
    const std::string good = text("digits/1/00.png");
    write("digits/1/c_cut.png", good.substr(0, good.size() / 2));
    write("digits/2/d_huge.pgm", "P5 99999999 99999999 255\n");
    std::filesystem::create_symlink("nowhere", folder + "/digits/2/e_broken.png");
    std::filesystem::create_symlink("f_loop.png", folder + "/digits/2/f_loop.png");
    return 6;
  }

  std::string job_path;
};

class Witness : public TrainingObserver {
 public:
  void notice(const std::string& text) override { notices.push_back(text); }
  std::vector<std::string> notices;
};

TEST_F(Images, BadOnesStopTheRunByName) {
  write("digits/1/00.png", "no image");
  EXPECT_CONTAINS(refusal<DataError>([&] { run_job(job({"data.resize=true"}), into("run")); }),
                  folder + "/digits/1/00.png");
  write("digits/1/00.png", "");
  EXPECT_CONTAINS(refusal<DataError>([&] { run_job(job({"data.resize=true"}), into("other")); }),
                  folder + "/digits/1/00.png: the file is empty");
}

TEST_F(Images, BadOnesAreSkippedCountedAndNamed) {
  const std::vector<std::string> settings = {"data.bad_images=skip", "data.resize=true"};
  const RunResult clean = run_job(job(settings), into("clean"));
  EXPECT_TRUE(clean.skipped.empty());
  const size_t bad = spoil();
  EXPECT_THROW(open({}), DataError) << "a broken link is refused at once";
  const RunData data = open(settings);
  EXPECT_EQ(data.training->size(), 36);
  ASSERT_EQ(data.skipped.size(), bad);
  EXPECT_EQ(data.skipped[0].name, folder + "/digits/0/a_empty.png");
  EXPECT_CONTAINS(data.skipped[0].reason, "the file is empty");
  EXPECT_CONTAINS(data.skipped[2].reason, "c_cut.png: damaged PNG");
  EXPECT_CONTAINS(data.skipped[3].reason, "too large");
  Witness witness;
  RunOptions options = into("run");
  options.observers = {&witness};
  const RunResult result = run_job(job(settings), options);
  EXPECT_EQ(result.skipped.size(), bad);
  ASSERT_EQ(witness.notices.size(), 1u);
  EXPECT_CONTAINS(witness.notices[0],
                  "6 images cannot be read and are skipped: " + folder + "/digits/0/a_empty.png, ");
  EXPECT_CONTAINS(witness.notices[0], " and 1 more");
  EXPECT_CONTAINS(text("run/log.jsonl"), "6 images cannot be read");
  // The listing has only the remaining images, so the training is that of the clean folder.
  EXPECT_EQ(result.training.digest, clean.training.digest);
  EXPECT_EQ(text("run/receipt.jsonl"), text("clean/receipt.jsonl"));
}

TEST_F(Images, ARunWithSkippedImagesResumes) {
  const std::vector<std::string> settings = {"data.bad_images=skip", "data.crop=random"};
  spoil();
  run_job(job(settings), into("whole"));
  RunOptions options = into("parts");
  options.stop_after = 2;
  EXPECT_TRUE(run_job(job(settings), options).training.stopped);
  options.stop_after = 0;
  options.resume = true;
  std::filesystem::remove(folder + "/digits/0/a_empty.png");  // was never part of it
  EXPECT_EQ(run_job(job(settings), options).skipped.size(), 5u);
  EXPECT_EQ(text("parts/receipt.jsonl"), text("whole/receipt.jsonl"));
}

TEST_F(Images, NothingLeftIsAnError) {
  const std::string skip = "data.bad_images=skip";
  for (int i = 0; i < 12; ++i) {
    const std::string number = (i < 10 ? "0" : "") + std::to_string(i);
    write("digits/1/" + number + ".png", "");
  }
  EXPECT_CONTAINS(refusal<DataError>([&] { open({skip}); }), "no image of the class `1`");
  write("held/0/00.png", "");
  EXPECT_EQ(open({skip, "data.train=held", "data.validation=held"}).skipped.size(), 2u);
  write("bad/0/1.png", "");
  write("bad/1/1.png", "x");
  EXPECT_CONTAINS(refusal<DataError>([&] {
                    open({skip, "data.train=bad"});
                  }),
                  "none of the 2 images of folder " + folder + "/bad can be read");
  EXPECT_CONTAINS(refusal<DataError>([&] {
                    open({skip, "data.train=held", "data.validation=bad"});
                  }),
                  "none of the 2 images");
}

TEST_F(Images, ATargetThatCannotBeReadTakesItsImageAlong) {
  write("held/1/03.png", "");
  const std::vector<std::string> settings = {"data.bad_images=skip", "data.targets=held",
                                             "data.crop=center"};
  const std::string denoiser = R"([data]
train = "digits"
[network]
input = { height = 20, width = 24, channels = 1 }
loss = "mean_squared_error"
layers = [ { type = "convolution2d", filters = 1, kernel = 3, padding = "same" } ]
[training]
mini_batch_size = 10
max_epochs = 1
device = "cpu"
)";
  job_path = write("images.toml", denoiser);
  const RunData data = open(settings);
  ASSERT_EQ(data.skipped.size(), 1u);
  EXPECT_EQ(data.skipped[0].name, folder + "/held/1/03.png");
  ASSERT_EQ(data.training->size(), 35);
  ASSERT_EQ(data.training_targets->size(), 35);
  for (int64_t i = 0; i < 35; ++i) {
    EXPECT_NE(data.training->name(i), "1/03.png");
    EXPECT_EQ(data.training->name(i), data.training_targets->name(i));
    EXPECT_EQ(read_image(*data.training_targets, i).width, 24);
  }
  for (const char* crop : {"center", "random"}) {
    const RunResult result = run_job(job({settings[0], settings[1], std::string("crop=") + crop}),
                                     into(std::string("run_") + crop));
    EXPECT_EQ(result.training.last_iteration, 3) << crop;
  }
}

TEST_F(Images, AFolderWithoutImagesIsRefusedForTrainingAlone) {
  std::filesystem::create_directories(folder + "/digits/3");
  write("digits/3/notes.txt", "later");
  EXPECT_CONTAINS(refusal<DataError>([&] { open({}); }), folder + "/digits/3 holds no image");
  std::filesystem::create_directories(folder + "/digits/4/deep/er");
  EXPECT_CONTAINS(refusal<DataError>([&] { open({}); }), ", nor does " + folder + "/digits/4 |");
  const RunData data = open({"data.train=held", "data.validation=digits", "data.test=digits"});
  EXPECT_EQ(data.validation->size(), 36);
  std::filesystem::create_directories(folder + "/held/.cache");
  EXPECT_EQ(open({"data.train=held"}).training->size(), 36);
  std::filesystem::create_directories(folder + "/nothing");
  EXPECT_CONTAINS(refusal<DataError>([&] { open({"data.train=nothing"}); }),
                  folder + "/nothing holds no");
}

TEST_F(Images, ALabelOnlyInValidationIsNamed) {
  copy("digits/0/00.png", "held/nine/1.png");
  const std::string message = refusal<InvalidArgument>([&] { open({"data.validation=held"}); });
  EXPECT_CONTAINS(message, "`nine`");
  EXPECT_CONTAINS(message, folder + "/held");
}

TEST_F(Images, CropsFitImagesOfAnySizeToTheNetwork) {
  // One image is larger than the others.
  const Image large = resize(read_image(*builtin_digits(), 5), 40, 31);
  const std::vector<std::byte> bytes = encode_png(large);
  write("digits/0/large.png", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  EXPECT_CONTAINS(refusal<DataError>([&] { run_job(job(), into("none")); }), "resize or crop");
  const RunData center = open({"data.crop=center", "data.validation=held"});
  EXPECT_FALSE(center.random_crop);
  for (int64_t i = 0; i < center.training->size(); ++i) {
    const Image image = read_image(*center.training, i);
    EXPECT_EQ(image.height, 20);
    EXPECT_EQ(image.width, 24);
  }
  const RunData random = open({"data.crop=random", "data.validation=held"});
  EXPECT_TRUE(random.random_crop);
  EXPECT_EQ(read_image(*random.training, 0).height, 28);
  EXPECT_EQ(read_image(*random.validation, 0).height, 20);
  // The number of threads and the memory for images have no effect.
  const std::vector<std::string> settings = {"data.crop=random", "data.validation=held",
                                             "rotation=10", "scale=[0.9, 1.1]", "reflect_y=true"};
  std::vector<std::string> receipts;
  for (const char* speed : {"threads=1", "cache_mib=0", "loader_threads=3"}) {
    std::vector<std::string> all = settings;
    all.emplace_back(speed);
    const RunResult result = run_job(job(all), into(speed));
    EXPECT_TRUE(result.validation.has_value());
    receipts.push_back(text(std::string(speed) + "/receipt.jsonl"));
  }
  EXPECT_EQ(receipts[0], receipts[1]);
  EXPECT_EQ(receipts[0], receipts[2]);
  run_job(job({"data.crop=center", "data.validation=held"}), into("centered"));
  EXPECT_NE(text("centered/receipt.jsonl"), receipts[0]);
}

TEST_F(Images, TheShorterSideIsResizedBeforeTheCrop) {
  const Image small = resize(read_image(*builtin_digits(), 5), 10, 19);  // less than the input
  const std::vector<std::byte> bytes = encode_png(small);
  write("digits/0/small.png", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto with = [](std::vector<std::string> settings) {
    settings.emplace_back("data.resize_shorter=25");
    settings.emplace_back("data.validation=held");
    return settings;
  };
  const RunData center = open(with({"data.crop=center"}));
  const RunData random = open(with({"data.crop=random"}));
  EXPECT_TRUE(random.random_crop);
  const DatastorePtr originals = image_folder(folder + "/digits");
  ASSERT_EQ(center.training->size(), originals->size());
  for (int64_t i = 0; i < originals->size(); ++i) {
    const Image image = read_image(*originals, i);
    const Image whole = image.height < 28 ? resize(image, 25, 47) : resize(image, 25, 25);
    EXPECT_EQ(read_image(*random.training, i), whole);
    EXPECT_EQ(read_image(*center.training, i), crop(whole, 20, 24));
  }
  EXPECT_EQ(read_image(*random.validation, 0), read_image(*center.validation, 0));
  EXPECT_EQ(read_image(*center.validation, 0).width, 24);
  EXPECT_EQ(preparation_of(job(with({"data.crop=random"}))),
            (Preparation{.crop = true, .resize_shorter = 25}));
  std::vector<std::string> receipts;
  for (const char* speed : {"threads=1", "cache_mib=0", "loader_threads=3"}) {
    run_job(job(with({"data.crop=random", speed})), into(speed));
    receipts.push_back(text(std::string(speed) + "/receipt.jsonl"));
  }
  EXPECT_EQ(receipts[0], receipts[1]);
  EXPECT_EQ(receipts[0], receipts[2]);
  run_job(job({"data.crop=random", "data.validation=held", "data.resize_shorter=26"}),
          into("other"));
  EXPECT_NE(text("other/receipt.jsonl"), receipts[0]);
}

TEST_F(Images, RegionsOfAnySizeAreResized) {
  const Image small = resize(read_image(*builtin_digits(), 5), 10, 19);  // less than the input
  const std::vector<std::byte> bytes = encode_png(small);
  write("digits/0/small.png", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto with = [](std::vector<std::string> settings) {
    settings.emplace_back("data.crop=random_resized");
    settings.emplace_back("data.validation=held");
    return settings;
  };
  const RunData data = open(with({}));
  ASSERT_TRUE(data.resized_crop.has_value());
  EXPECT_FALSE(data.random_crop);
  EXPECT_EQ(*data.resized_crop, RandomResizedCrop());
  // Of 20 x 24 the shorter side of validation images is 8/7 of 24.
  const DatastorePtr held = open({"data.validation=held"}).validation;
  const Image whole = read_image(*held, 0);
  EXPECT_EQ(read_image(*data.validation, 0), crop(resize(whole, 27, 27), 20, 24));
  EXPECT_EQ(read_image(*data.training, 1), read_image(*open({"data.validation=held"}).training, 1));
  EXPECT_EQ(preparation_of(job(with({}))), (Preparation{.crop = true, .resize_shorter = 27}));
  const std::vector<std::string> sized = with({"data.resize_shorter=40", "crop_area=[0.3, 0.9]"});
  EXPECT_EQ(preparation_of(job(sized)), (Preparation{.crop = true, .resize_shorter = 40}));
  EXPECT_EQ(open(sized).resized_crop->area, (NumberRange{0.3, 0.9}));
  EXPECT_EQ(read_image(*open(sized).training, 1).height, 28);
  std::vector<std::string> receipts;
  for (const char* speed : {"threads=1", "threads=5", "cache_mib=0", "loader_threads=3"}) {
    run_job(job(with({speed, "rotation=10"})), into(speed));
    receipts.push_back(text(std::string(speed) + "/receipt.jsonl"));
  }
  for (const std::string& receipt : receipts) EXPECT_EQ(receipt, receipts[0]);
  run_job(job(with({"rotation=10", "crop_area=[0.3, 0.9]"})), into("other"));
  EXPECT_NE(text("other/receipt.jsonl"), receipts[0]);
}

TEST_F(Images, DecodedImagesHaveTheSizeThatResizingNeeds) {
  const auto least = [&](const std::vector<std::string>& settings) {
    const Job made = job(settings);
    return least_decoded(preparation_of(made), build_network(made));
  };
  EXPECT_FALSE(least({"data.resize=true"}).any());
  EXPECT_EQ(least({"data.resize=true", "scaled_decoding=true"}), (LeastSize{20, 24}));
  EXPECT_EQ(least({"data.crop=center", "data.resize_shorter=26", "scaled_decoding=true"}),
            (LeastSize{26, 26}));
  EXPECT_EQ(least({"data.crop=random_resized", "scaled_decoding=true"}), (LeastSize{27, 27}));
  EXPECT_EQ(preparation_of(job({"data.resize=true", "scaled_decoding=true"})),
            (Preparation{.resize = true, .scaled = true}));
  for (const char* crop : {"data.crop=center", "data.crop=random", "data.crop=none"}) {
    EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                      job({crop, "scaled_decoding=true"});
                    }),
                    "[data] scaled_decoding is for images that are resized");
  }
  // It is part of a training's identity, although PNG files are decoded as before.
  run_job(job({"data.resize=true"}), into("plain"));
  run_job(job({"data.resize=true", "scaled_decoding=true"}), into("scaled"));
  EXPECT_NE(text("scaled/receipt.jsonl"), text("plain/receipt.jsonl"));
}

TEST_F(Images, CropsThatCannotBeAreRefused) {
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { job({"crop_area=[0.5, 1]"}); }),
                  "[data] crop_area is for regions that are resized, but crop is \"none\"");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                    job({"crop_ratio=[1, 1]", "data.crop=center"});
                  }),
                  "[data] crop_ratio is for regions that are resized, but crop is \"center\"");
  for (const char* wrong :
       {"crop_area=[0, 0]", "crop_area=[0.5, 0.1]", "crop_area=[0.5, 1.1]", "crop_ratio=[0, 1]"}) {
    EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                      job({"data.crop=random_resized", wrong});
                    }),
                    "crop_");
  }

  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { job({"data.resize_shorter=30"}); }),
                  "[data] resize_shorter is for images that are cropped afterwards");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                    job({"data.resize_shorter=-1", "data.crop=center"});
                  }),
                  "resize_shorter");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                    job({"data.crop=center", "data.resize=true"});
                  }),
                  "resize and crop cannot both be given");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { job({"data.crop=centr"}); }),
                  "did you mean `center`?");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { job({"data.bad_images=ignore"}); }),
                  "[data] bad_images must be one of \"stop\", \"skip\"");
  const Image small = resize(read_image(*builtin_digits(), 5), 19, 24);
  const std::vector<std::byte> bytes = encode_png(small);
  write("digits/0/small.png", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  for (const char* crop : {"data.crop=center", "data.crop=random"}) {
    EXPECT_CONTAINS(refusal<DataError>([&] { run_job(job({crop}), into(crop)); }), "0/small.png");
  }
}

// Collects notices.
struct Noticed : TrainingObserver {
  void notice(const std::string& text) override { all += text + "\n"; }
  std::string all;
};

TEST_F(Images, LabelsAreThoseOfTheFoldersThatTheJobChooses) {
  for (const char* name : {"church/indoor", "flat/indoor", "flat/outdoor"}) {
    copy("digits/0/00.png", std::string("rooms/") + name + "/1.png");
  }
  const auto classes = [&](const std::string& labels) {
    return open_run_data(job({"data.train=rooms", "data.labels=" + labels})).training->classes();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(classes("first"), (Names{"church", "flat"}));
  EXPECT_EQ(classes("nearest"), (Names{"indoor", "outdoor"}));
  EXPECT_EQ(classes("path"), (Names{"church/indoor", "flat/indoor", "flat/outdoor"}));
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { classes("last"); }),
                  "[data] labels must be one of");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                    open({"data.train=builtin:digits", "data.labels=path"});
                  }),
                  "builtin:digits has no folders");
  // The network has an output for each of three classes.
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { plan_job(job({"data.train=rooms"})); }),
                  "2 classes (church, flat)");
}

TEST_F(Images, AFolderOfPartsIsRefusedUnlessLabelsDoNotMatter) {
  for (const char* part : {"train", "test"}) {
    for (const char* digit : {"0", "1", "2"}) {
      copy("digits/" + std::string(digit) + "/00.png",
           "parts/" + std::string(part) + "/" + digit + "/1.png");
    }
  }
  EXPECT_CONTAINS(refusal<DataError>([&] { open({"data.train=parts"}); }),
                  "parts of a data set, not classes");
  EXPECT_EQ(open({"data.train=parts/train"}).training->size(), 3);
  EXPECT_EQ(open({"data.train=parts", "data.labels=nearest"}).training->size(), 6);
  EXPECT_EQ(open({"data.train=parts", "data.targets=inputs"}).training->size(), 6);
}

TEST_F(Images, WhatIsLeftOutIsSaidBeforeTheTraining) {
  write("digits/0/old.tif", std::string("II*\0....", 8));
  write("digits/.trash/1.png", "");
  Noticed noticed;
  RunOptions options = into("out");
  options.observers = {&noticed};
  std::string planned;
  options.planned = [&](const JobPlan& plan) {
    planned = std::to_string(plan.data.training->size()) + noticed.all;
  };
  run_job(job({"data.resize=true"}), options);
  EXPECT_EQ(planned, "36");
  EXPECT_EQ(noticed.all, folder +
                             "/digits: left out: 1 TIFF image (such as 0/old.tif), 1 hidden "
                             "name (such as .trash)\n");
  EXPECT_CONTAINS(text("out/log.jsonl"), "1 TIFF image");
}

TEST_F(Images, AFlatFolderHasNoClassFolders) {
  std::filesystem::rename(folder + "/digits/1", folder + "/flat");
  const std::string message = refusal<DataError>([&] { open({"train=flat"}); });
  EXPECT_CONTAINS(message, "flat has no class folders: its 12 images lie in the folder itself");
  EXPECT_CONTAINS(message, "put the images of each class into one folder, named after the class");
  EXPECT_FALSE(testing::contains(message, "units")) << message;
  open({"train=flat", "targets=inputs"});  // image to image
}

TEST_F(Images, ValidationIsOnceAnEpochWhereEpochsAreShorterThanTheDefault) {
  const auto frequency = [&](std::vector<std::string> settings) {
    settings.emplace_back("resize=true");
    const Job read = job(std::move(settings));
    const JobPlan plan = plan_job(read);
    EXPECT_TRUE(plan.job.validation_frequency_given);
    // Read again, as a batch job does, it is the same.
    const JobPlan resolved = plan_job(read_resolved_job(read.resolved().dump()));
    EXPECT_EQ(resolved.job.resolved().dump(), plan.job.resolved().dump());
    return plan.job.training.validation.frequency;
  };
  EXPECT_EQ(frequency({}), 0);                                     // 3 iterations
  EXPECT_EQ(frequency({"mini_batch_size=1", "shard_size=1"}), 0);  // 36
  EXPECT_EQ(frequency({"validation_frequency=50"}), 50);
  EXPECT_EQ(frequency({"validation_frequency=2"}), 2);
  EXPECT_EQ(frequency({"validation_frequency_unit=epoch"}), 50);
  // A run of an earlier version keeps its 50.
  RunOptions options = into("run");
  run_job(job({"resize=true", "validation_frequency=50", "max_iterations=2"}), options);
  options.resume = true;
  run_job(job({"resize=true", "max_iterations=4"}), options);
  EXPECT_CONTAINS(text("run/job.json"), "\"validation_frequency\": 50");
  // So does one whose number is of epochs.
  Job kept = job({"resize=true"});
  write("epochs/job.json",
        R"({"training": {"validation_frequency": 2, "validation_frequency_unit": "epoch"}})");
  keep_validation_frequency(local_files(), folder + "/epochs", kept);
  EXPECT_EQ(kept.training.validation.frequency, 2);
  EXPECT_EQ(kept.training.validation.frequency_unit, FrequencyUnit::epoch);
}

TEST_F(Images, WhatAnInitialModelAndFreezeDoNotKeepIsSaid) {
  std::string with_normalization = classifier;
  with_normalization.replace(with_normalization.find("{ type = \"relu\" }"), 17,
                             "{ type = \"batch_normalization\", name = \"norm\" }");
  write("job.toml", with_normalization);
  run_job(job({"resize=true", "max_iterations=1"}), into("first"));
  const auto notices = [&](const std::string& statistics) {
    std::string all;
    const JobPlan plan =
        plan_job(job({"freeze=norm", "network.layers.norm.statistics=" + statistics}),
                 {.initial_model = folder + "/first"});
    for (const std::string& notice : plan.own_notices()) all += notice + "\n";
    return all;
  };
  EXPECT_CONTAINS(notices("batch"),
                  "the inputs are normalized by statistics of this training's "
                  "data, not by those of the initial model (layers: `input`)");
  EXPECT_CONTAINS(notices("batch"), "freeze keeps the parameters of batch normalization");
  EXPECT_FALSE(testing::contains(notices("moving"), "freeze"));
}

TEST_F(Images, ClassWeightsMayBeGivenByName) {
  const auto weights = [&](const std::vector<std::string>& settings) {
    const JobPlan plan = plan_job(job(settings));
    return plan.job.training.class_weights;
  };
  using Weights = std::vector<double>;
  EXPECT_EQ(weights({}), Weights{});
  EXPECT_EQ(weights({"class_weights={2=3, 0=0.5}"}), (Weights{0.5, 1, 3}));
  EXPECT_EQ(weights({"class_weights=[1, 2, 4]"}), (Weights{1, 2, 4}));
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { weights({"class_weights={0=1, 7=2}"}); }),
                  "class_weights names the class `7`");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { weights({"class_weights={0=-1}"}); }),
                  "[training.class_weights] 0");
  // A job with names is kept with names, and trains as one with the same weights in a list.
  run_job(job({"data.resize=true", "class_weights={2=3, 0=0.5}"}), into("names"));
  run_job(job({"data.resize=true", "class_weights=[0.5, 1, 3]"}), into("list"));
  EXPECT_EQ(text("names/receipt.jsonl"), text("list/receipt.jsonl"));
  const Job again = read_job(local_files(), folder + "/names/job.json");
  EXPECT_EQ(again.class_weights, (std::map<std::string, double>{{"0", 0.5}, {"2", 3}}));
  RunOptions resumed = into("names");
  resumed.resume = true;
  EXPECT_NO_THROW(
      run_job(job({"data.resize=true", "class_weights={2=3, 0=0.5}", "max_epochs=3"}), resumed));
}

TEST_F(Images, ClassWeightsMayBeBalanced) {
  const JobPlan plan = plan_job(job({"class_weights=balanced"}));
  EXPECT_EQ(plan.job.training.class_weights, balanced_class_weights(*plan.training.training));
  EXPECT_EQ(plan.job.training.class_weights.size(), plan.classes.size());
  run_job(job({"data.resize=true", "class_weights=balanced"}), into("balanced"));
  const Job again = read_job(local_files(), folder + "/balanced/job.json");
  EXPECT_TRUE(again.balanced_class_weights);
  RunOptions resumed = into("balanced");
  resumed.resume = true;
  EXPECT_NO_THROW(
      run_job(job({"data.resize=true", "class_weights=balanced", "max_epochs=3"}), resumed));
}

TEST_F(Images, OptionsWithoutEffectAreSaid) {
  const auto notices = [&](const std::vector<std::string>& settings) {
    std::string all;
    for (const std::string& text : plan_job(job(settings)).own_notices()) all += text + "\n";
    return all;
  };
  const std::string usual = notices({"resize=true"});
  EXPECT_FALSE(testing::contains(usual, "has no effect"));
  const std::string others =
      notices({"resize=true", "solver=adam", "momentum=0.5", "nesterov=true", "drop_factor=0.5",
               "gradient_threshold_method=global-l2norm"});
  for (const char* name : {"momentum", "nesterov", "drop_factor", "gradient_threshold_method"}) {
    EXPECT_CONTAINS(others, std::string(name) + " has no effect");
  }
  EXPECT_CONTAINS(others, "momentum has no effect: it is for the solver sgdm");
  EXPECT_FALSE(testing::contains(
      notices({"resize=true", "learning_rate_schedule=piecewise", "drop_factor=0.5"}),
      "has no effect"));
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                    plan_job(job({"resize=true", "data.fold=2"}));
                  }),
                  "[data] fold = 2 needs folds");
}

TEST_F(Images, ALossOfProbabilitiesWithoutSoftmaxIsSaid) {
  std::string text = classifier;
  const std::string end = ",\n  { type = \"softmax\" } ]";
  ASSERT_TRUE(testing::contains(text, end));
  text.replace(text.find(end), end.size(), " ]");
  write("job.toml", text);
  std::string all;
  for (const std::string& notice : plan_job(job({"resize=true"})).own_notices()) all += notice;
  EXPECT_CONTAINS(all, "the loss cross_entropy takes probabilities, but the network ends in `");
  EXPECT_CONTAINS(all, "(fully_connected): a last layer { type = \"softmax\" } makes them");
}

TEST_F(Images, WeightsByPositionOfNumbersThatAreOutOfOrderAreDoubtful) {
  std::filesystem::rename(folder + "/digits/1", folder + "/digits/10");
  const auto notices = [&](const std::string& weights) {
    std::string all;
    for (const std::string& text : plan_job(job({"class_weights=" + weights})).notices()) {
      all += text + "\n";
    }
    return all;
  };
  EXPECT_CONTAINS(notices("[1, 2, 4]"), "in the order of their names, 0, 10, 2, ");
  EXPECT_EQ(notices("[2, 2, 2]"), "");
  EXPECT_EQ(notices("{0=1, 10=2}"), "");
  EXPECT_EQ(notices("[]"), "");
  // Two classes, all of which are named.
  std::filesystem::remove_all(folder + "/digits/0");
  std::string two = classifier;
  two.replace(two.find("units = 3"), 9, "units = 2");
  write("job.toml", two);
  EXPECT_EQ(notices("[1, 2]"),
            "class_weights belong to the classes in the order of their names, 10, 2, which is not "
            "that of the numbers: a table gives weights by name\n");
  EXPECT_EQ(notices("[2, 2]"), "");
}

TEST_F(Images, AugmentationIsReadFromTheJob) {
  const Job read =
      job({"rotation=15", "scale=[0.8, 1.25]", "shear_x=5", "shear_y=[-2.5, 0]", "reflect_y=true"});
  EXPECT_EQ(read.augmentation.rotation, (NumberRange{-15, 15}));
  EXPECT_EQ(read.augmentation.scale, (NumberRange{0.8, 1.25}));
  EXPECT_EQ(read.augmentation.shear_x, (NumberRange{-5, 5}));
  EXPECT_EQ(read.augmentation.shear_y, (NumberRange{-2.5, 0}));
  EXPECT_TRUE(read.augmentation.reflect_y);
  const std::string path = write("resolved.json", read.resolved().dump());
  EXPECT_EQ(read_job(local_files(), path).augmentation, read.augmentation);
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { job({"scale=[0, 1]"}); }), "[augmentation] scale");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { job({"shear_x=90"}); }), "[augmentation] shear_x");
}

}  // namespace
}  // namespace lockstep
