#include "lockstep/runs/jobs/job_file.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lockstep/engine/nn/network.h"
#include "lockstep/runs/jobs/job_difference.h"
#include "tests/runs/support.h"

namespace lockstep {
namespace {

using testing::refusal;

const char* const small = R"toml([data]
train = "builtin:digits"
validation_fraction = "1 / 10"

[augmentation]
translate_x = 2

[variables]
depth = 2
width = "round(16 / sqrt(depth))"

[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { repeat = "depth", layers = [
    { type = "convolution2d", name = "conv", filters = "width", kernel = 3, padding = "same" },
    { type = "relu" } ] },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]
loss = "cross_entropy"

[training]
max_epochs = 3
validation_frequency = "epoch"
)toml";

class JobFile : public testing::WithFolder {
 protected:
  Job read(const std::string& text, const std::vector<std::string>& settings = {}) {
    return read_job(local_files(), write("job.toml", text), settings);
  }
  std::string refused(const std::string& text, const std::vector<std::string>& settings = {}) {
    const std::string message = refusal<InvalidArgument>([&] { read(text, settings); });
    EXPECT_CONTAINS(message, "job.toml: [");
    return message;
  }
  // The small job with `from` replaced by `to`.
  static std::string with(const std::string& from, const std::string& to) {
    std::string text = small;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  // A job with these layers behind an input of 4 x 4.
  static std::string layers(const std::string& list) {
    return "[data]\ntrain = \"builtin:digits\"\n[network]\n"
           "input = { height = 4, width = 4, channels = 1 }\nlayers = [" +
           list + "]\n";
  }
  static std::vector<std::string> names(const Job& job) {
    std::vector<std::string> all;
    for (const auto& layer : (*job.network)["layers"]) all.push_back(layer["name"]);
    return all;
  }
};

TEST_F(JobFile, LayersAreSetByName) {
  const auto filters = [](const Job& job, size_t layer) {
    return (*job.network)["layers"][layer]["filters"].get<int>();
  };
  const auto set = [&](const std::string& setting, const std::string& list) {
    return read(layers(list), {setting});
  };
  const std::string named =
      R"({ type = "convolution2d", name = "stem.a", filters = 2, kernel = 1 },
         { type = "convolution2d", filters = 3, kernel = 1 },
         { layers = [ { type = "convolution2d", name = "last", filters = 4, kernel = 1 } ] })";
  EXPECT_EQ(filters(set("network.layers.stem.a.filters=5", named), 1), 5);
  EXPECT_EQ(filters(set("network.layers.convolution2d_1.filters=6", named), 2), 6);
  EXPECT_EQ(filters(set("network.layers.last.filters = 7", named), 3), 7);
  EXPECT_EQ(filters(set("network.layers.1.filters=8", named), 2), 8);
  EXPECT_EQ((*set("network.layers.input.height=9", named).network)["layers"][0]["height"], 9);
  // All repetitions of a group have the same fields.
  const Job twice = read(small, {"network.layers.conv.filters=5"});
  EXPECT_EQ(filters(twice, 1), 5);
  EXPECT_EQ(filters(twice, 3), 5);
  const std::string one = refused(small, {"network.layers.conv_2.filters=5"});
  EXPECT_CONTAINS(one, "`conv_2` is one of 2 repetitions of a layer, which have the same fields");
  EXPECT_CONTAINS(one, "for all of them: network.layers.conv.filters");
  const std::string relu = refused(small, {"network.layers.relu_1.type=tanh"});
  EXPECT_CONTAINS(relu, "for all of them: network.layers.0.layers.1.type");
  const std::string unknown = refused(small, {"network.layers.softmx_1.type=relu"});
  EXPECT_CONTAINS(unknown, "network.layers.softmx_1.type: there is no layer `softmx_1`");
  EXPECT_CONTAINS(unknown, "did you mean `softmax_1`?");
  EXPECT_CONTAINS(refused(small, {"network.layers.conv.filtres=5"}), "filtres");
  // A name that `runs show` prints precedes one of a repeated group in the file.
  const std::string conv = R"({ type = "convolution2d", name = "conv", filters = 2, kernel = 1 })";
  const std::string behind = "{ repeat = 2, layers = [ " + conv + " ] }, " + conv;
  const Job full = set("network.layers.conv.filters=5", behind);
  EXPECT_EQ(names(full), (std::vector<std::string>{"input", "conv_1", "conv_2", "conv"}));
  EXPECT_EQ(filters(full, 1), 2);
  EXPECT_EQ(filters(full, 2), 2);
  EXPECT_EQ(filters(full, 3), 5);
  const std::string nested =
      "{ repeat = 2, layers = [ " + conv + ", { repeat = 2, layers = [ " + conv + " ] } ] }";
  const std::string several = refused(layers(nested), {"network.layers.conv.filters=5"});
  EXPECT_CONTAINS(several, "several layers of the file have the name `conv`");
  EXPECT_CONTAINS(several,
                  "write network.layers.0.layers.0.filters or "
                  "network.layers.0.layers.1.layers.0.filters");
}

TEST_F(JobFile, IsResolved) {
  const Job job = read(small);
  EXPECT_EQ(job.name, "job");
  EXPECT_EQ(job.data.train, std::vector<std::string>{"builtin:digits"});
  EXPECT_DOUBLE_EQ(job.data.validation_fraction, 0.1);
  EXPECT_EQ(job.augmentation.translate_x, (Size2d{-2, 2}));
  EXPECT_EQ(job.training.max_epochs, 3);
  EXPECT_EQ(job.training.validation.frequency, 0);
  EXPECT_EQ(names(job), (std::vector<std::string>{"input", "conv_1", "relu_1", "conv_2", "relu_2",
                                                  "fully_connected_1", "softmax_1"}));
  EXPECT_EQ((*job.network)["layers"][1]["filters"], 11);
  EXPECT_EQ((*job.network)["layers"][1]["padding"], "same");
  const nlohmann::json network = *job.network;
  EXPECT_TRUE(Network::from_json(network).analyze().empty());
}

TEST_F(JobFile, ResolvedJobIsReadAgainWithTheSameResult) {
  const Job job = read(small, {"name=other", "training.threads=3"});
  const std::string path = write("resolved.json", job.resolved().dump());
  const Job again = read_job(local_files(), path);
  EXPECT_EQ(again.resolved().dump(), job.resolved().dump());
  EXPECT_EQ(again.name, "other");
  EXPECT_EQ(job.resolved()["training"]["initial_learning_rate"], 0.01);
  EXPECT_EQ(job.resolved()["training"]["shard_size"], 0);  // plan_job() decides
}

// A batch job reads the resolved job: plan_job() decides there as it does here.
TEST_F(JobFile, AResolvedJobSaysHowOftenToValidateOnlyIfItWasGiven) {
  const Job open = read(with("validation_frequency = \"epoch\"\n", ""));
  const auto resolved = open.resolved();
  EXPECT_FALSE(resolved["training"].contains("validation_frequency"));
  EXPECT_FALSE(resolved["training"].contains("validation_frequency_unit"));
  const Job again = read_resolved_job(resolved.dump());
  EXPECT_FALSE(open.validation_frequency_given);
  EXPECT_FALSE(again.validation_frequency_given);
  EXPECT_EQ(again.resolved().dump(), resolved.dump());
  EXPECT_EQ(job_difference(again.resolved(), resolved).what, "");
  EXPECT_TRUE(read_resolved_job(read(small).resolved().dump()).validation_frequency_given);
}

TEST_F(JobFile, SettingsChangeIt) {
  EXPECT_EQ(read(small, {"training.max_epochs=5"}).training.max_epochs, 5);
  EXPECT_EQ(read(small, {"max_epochs=5", "max_epochs = 6"}).training.max_epochs, 6);
  EXPECT_EQ((*read(small, {"depth=1"}).network)["layers"][1]["filters"], 16);
  EXPECT_EQ((*read(small, {"variables.width=3 + depth"}).network)["layers"][1]["filters"], 5);
  EXPECT_EQ(read(small, {"solver=adam"}).training.solver.type, "adam");
  EXPECT_EQ(read(small, {"augmentation.translate_y=[-1, 3]"}).augmentation.translate_y,
            (Size2d{-1, 3}));
  EXPECT_EQ(read(small, {"reflect_x=true"}).augmentation.reflect_x, true);
  EXPECT_EQ((*read(small, {"network.input.height=20"}).network)["layers"][0]["height"], 20);
  EXPECT_EQ(read(small, {"validation_fraction=0.2"}).data.validation_fraction, 0.2);
  EXPECT_EQ(read(small, {"verbose_frequency=7"}).verbose_frequency, 7);
  EXPECT_CONTAINS(refused(small, {"max_epoch=5"}), "did you mean `max_epochs`?");
  EXPECT_CONTAINS(refused(small, {"training.max_epoch=5"}), "did you mean `max_epochs`?");
  EXPECT_CONTAINS(refused(small, {"loss=mean_squared_error"}), "did you mean `network.loss`?");
  EXPECT_CONTAINS(refused(small, {"layer=3"}), "did you mean `network.layers`?");
  EXPECT_CONTAINS(refused(small, {"wholly_unknown=3"}), "`lockstep reference` lists all fields");
  EXPECT_CONTAINS(refused(small, {"max_epochs"}), "KEY=VALUE");
  EXPECT_CONTAINS(refused(small, {"=5"}), "KEY=VALUE");
  EXPECT_CONTAINS(refused(small, {"a..b=5"}), "KEY=VALUE");
  EXPECT_CONTAINS(refused(small, {"network.loss.x=5"}), "no table `network.loss`");
  EXPECT_CONTAINS(refused(with("depth = 2", "depth = 2\nseed = 1"), {"seed=5"}), "variables.seed");
}

TEST_F(JobFile, KnowsWhatTheFileAndTheSettingsName) {
  const Job job = read(small, {"momentum=0.9", "width=8"});
  EXPECT_EQ(job.given,
            (std::vector<std::string>{"augmentation.translate_x", "training.max_epochs",
                                      "training.momentum", "training.validation_frequency"}));
  // A resolved job names all, whoever set them.
  const std::string resolved = write("job.json", job.resolved().dump());
  EXPECT_TRUE(read_job(local_files(), resolved).given.empty());
  EXPECT_TRUE(read_resolved_job(job.resolved().dump()).given.empty());
}

TEST_F(JobFile, SyntaxErrorsNameLineAndColumn) {
  const std::string message =
      refusal<DataError>([&] { read("[data]\ntrain = \"a\"\ntest = = 3\n"); });
  EXPECT_CONTAINS(message, "job.toml, line 3, column 8");
  EXPECT_CONTAINS(refusal<DataError>([&] { read("a = 1\na = 2\n"); }), "line 2");
  EXPECT_CONTAINS(
      refusal<DataError>([&] { read_job(local_files(), write("a.json", "{\"a\": }")); }), "byte 7");
  EXPECT_THROW(read_job(local_files(), write("b.json", std::string(100000, '['))), DataError);
  EXPECT_THROW(read("a = " + std::string(100000, '[')), DataError);
  EXPECT_THROW(read_job(local_files(), folder + "/none.toml"), FileError);
  EXPECT_THROW(read_job(local_files(), folder), DataError);
}

TEST_F(JobFile, WhatIsUnknownIsRefusedWithTheNearestName) {
  EXPECT_CONTAINS(refused(with("[training]", "[trainign]")), "did you mean `training`?");
  EXPECT_CONTAINS(refused(with("max_epochs", "max_epoch")), "did you mean `max_epochs`?");
  EXPECT_CONTAINS(refused(with("\"relu\"", "\"rleu\"")), "did you mean `relu`?");
  EXPECT_CONTAINS(refused(with("\"relu\"", "\"rleu\"")), "line 17");
  EXPECT_CONTAINS(refused(with("filters =", "filter =")), "`filter` meant to be `filters`");
  EXPECT_CONTAINS(refused(with("repeat =", "repaet =")), "did you mean `repeat`?");
  EXPECT_CONTAINS(refused(with("loss =", "los =")), "did you mean `loss`?");
  EXPECT_CONTAINS(refused(with("\"cross_entropy\"", "\"crossentropy\"")),
                  "did you mean `cross_entropy`?");
  EXPECT_CONTAINS(refused(with("translate_x", "translatex")), "did you mean `translate_x`?");
  EXPECT_CONTAINS(refused(with("channels = 1", "chanels = 1")), "channels");
  EXPECT_CONTAINS(refused(with("builtin:digits", "builtin:digit")),
                  "did you mean `builtin:digits`?");
  EXPECT_CONTAINS(refused(with("\"width\"", "\"wdith\"")), "did you mean `width`?");
}

TEST_F(JobFile, WrongValuesNameTheField) {
  EXPECT_CONTAINS(refused(with("max_epochs = 3", "max_epochs = 0")), "max_epochs");
  EXPECT_CONTAINS(refused(with("max_epochs = 3", "max_epochs = \"depth / 4\"")), "which is 0.5");
  EXPECT_CONTAINS(refused(with("max_epochs = 3", "momentum = nan")), "momentum");
  EXPECT_CONTAINS(refused(with("max_epochs = 3", "momentum = 2024-01-01")), "momentum");
  EXPECT_CONTAINS(refused(with("max_epochs = 3", "l2 = \"1 / (depth - 2)\"")), "training.l2");
  EXPECT_CONTAINS(refused(with("\"width\"", "\"width / 2\"")), "filters");
  EXPECT_CONTAINS(refused(with("depth = 2", "depth = \"width\"")), "depth -> width -> depth");
  EXPECT_CONTAINS(refused(with("depth = 2", "depth = -1")), "variables.width");
  EXPECT_CONTAINS(refused(with("depth = 2", "depth = true")), "variables.depth");
  EXPECT_CONTAINS(refused(with("train = \"builtin:digits\"", "train = 3")), "train");
  EXPECT_CONTAINS(refused(with("train = \"builtin:digits\"", "")), "train is missing");
  EXPECT_CONTAINS(refused(with("\"1 / 10\"", "1")), "validation_fraction");
  EXPECT_CONTAINS(refused(with("\"1 / 10\"", "0.5\ntest_fraction = 0.5")), "leave nothing");
  EXPECT_CONTAINS(refused(with("\"1 / 10\"", "0.5\nvalidation = \"x\"")), "cannot both be given");
  EXPECT_CONTAINS(refused("name = \"a/b\"\n" + std::string(small)), "not a valid job name");
  EXPECT_CONTAINS(refused("[data]\ntrain = \"builtin:digits\"\n"), "[network] is missing");
  EXPECT_CONTAINS(refused("network = 3\n[data]\ntrain = \"builtin:digits\"\n"), "[network]");
  EXPECT_CONTAINS(refused(with("kernel = 3, padding = \"same\"", "kernel = 40")), "conv_1: ");
  EXPECT_CONTAINS(refusal<Unsupported>([&] { read(with("builtin:digits", "gs://a/b")); }), "gs://");
  EXPECT_CONTAINS(refused(with("builtin:digits", "s3://a/b")), "`s3://a/b` has no valid bucket");
}

TEST_F(JobFile, TargetsOfEachPartAreFoundOrMissed) {
  write("images/a/x.png", "");
  write("wanted/a/x.png", "");
  const auto data = [&](const std::string& fields) {
    return read(with("train = \"builtin:digits\"", fields)).data;
  };
  const JobData own = data("train = \"builtin:digits\"\ntargets = \"inputs\"");
  EXPECT_EQ(own.targets, "inputs");
  EXPECT_EQ(own.test_targets, "inputs");
  const JobData folders = data("train = \"images\"\ntargets = \"wanted\"");
  EXPECT_EQ(folders.targets, folder + "/wanted");
  const auto refused_data = [&](const std::string& fields) {
    return refused(with("train = \"builtin:digits\"", fields));
  };
  EXPECT_CONTAINS(refused_data("train = \"images\"\ntargets = \"wanted\"\ntest = \"images\""),
                  "test_targets are missing");
  EXPECT_CONTAINS(refused_data("train = \"images\"\ntest_targets = \"wanted\""),
                  "no targets to train");
  EXPECT_CONTAINS(refused(with("max_epochs = 3", "max_epochs = 3\n[noise]\nsalt_and_peper = 1")),
                  "did you mean `salt_and_pepper`");
}

TEST_F(JobFile, GroupsRepeat) {
  const std::string relu = "{ type = \"relu\" }";
  EXPECT_EQ(names(read(layers("{ repeat = 0, layers = [" + relu + "] }," + relu))).size(), 2u);
  EXPECT_EQ(names(read(layers("{ repeat = 2, layers = [ { repeat = 3, layers = [" + relu +
                              "] }, { type = \"relu\", name = \"r\" } ] }"))),
            (std::vector<std::string>{"input", "relu_1", "relu_2", "relu_3", "r_1", "relu_4",
                                      "relu_5", "relu_6", "r_2"}));
  EXPECT_EQ(names(read(layers("{ layers = [ { type = \"relu\", name = \"r\" } ] }"))),
            (std::vector<std::string>{"input", "r"}));
  // Default names avoid the given names.
  EXPECT_EQ(names(read(layers(relu + ", { type = \"relu\", name = \"relu_1\" }"))),
            (std::vector<std::string>{"input", "relu_2", "relu_1"}));
  for (const char* count : {"-1", "1.5", "\"1 / 0\"", "true", "10001", "1e300"}) {
    EXPECT_CONTAINS(refused(layers("{ repeat = " + std::string(count) + ", layers = [] }")),
                    "repeat");
  }
  EXPECT_CONTAINS(refused(layers("{ repeat = 2 }")), "layers");
  EXPECT_CONTAINS(refused(layers("{ repeat = 2, layers = 3 }")), "list");
  EXPECT_CONTAINS(refused(layers("{ repeat = 2, layers = [ 3 ] }")), "table");
  EXPECT_CONTAINS(refused(layers(relu + ", { type = \"relu\", name = \"input\" }")), "two layers");
}

TEST_F(JobFile, GroupsAreBounded) {
  EXPECT_EQ(names(read(layers("{ repeat = 3000, layers = [{ type = \"relu\" }] }"))).size(), 3001u);
  EXPECT_CONTAINS(refused(layers("{ repeat = 10000, layers = [{ type = \"relu\" }, "
                                 "{ type = \"relu\" }] }")),
                  "10000 layers");
  std::string nested = "{ type = \"relu\" }";
  for (int i = 0; i < 10; ++i) nested = "{ repeat = 10000, layers = [" + nested + "] }";
  EXPECT_CONTAINS(refused(layers(nested)), "10000 layers");
  std::string empty;
  for (int i = 0; i < 5; ++i) empty = "{ repeat = 10000, layers = [" + empty + "] }";
  EXPECT_CONTAINS(refused(layers(empty)), "10000 layers");
  std::string deep = "{ type = \"relu\" }";
  for (int i = 0; i < 20; ++i) deep = "{ layers = [" + deep + "] }";
  EXPECT_CONTAINS(refused(layers(deep)), "deep");
}

TEST_F(JobFile, ReferencesInGroupsMeanTheSameRepetition) {
  const Job job = read(layers(
      "{ type = \"convolution2d\", filters = 2, kernel = 3, padding = \"same\", name = \"first\" },"
      "{ repeat = 2, layers = ["
      "  { type = \"convolution2d\", filters = 2, kernel = 3, padding = \"same\", name = \"c\" },"
      "  { type = \"relu\" },"
      "  { type = \"addition\", name = \"sum\", inputs = [\"relu_x\", \"group_input\"] },"
      "  { type = \"relu\", name = \"relu_x\", inputs = \"c\" } ,"
      "  { type = \"relu\", name = \"out\", inputs = \"sum\" } ] },"
      "{ type = \"shared\", layer = \"c\", inputs = [\"out\"] },"
      "{ type = \"addition\", inputs = [\"shared_1\", \"first\"] }"));
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& layer : (*job.network)["layers"]) by_name[layer["name"]] = layer;
  EXPECT_EQ(by_name["sum_1"]["inputs"], (nlohmann::json{"relu_x_1", "first"}));
  EXPECT_EQ(by_name["sum_2"]["inputs"], (nlohmann::json{"relu_x_2", "out_1"}));
  EXPECT_EQ(by_name["relu_x_2"]["inputs"], (nlohmann::json{"c_2"}));
  EXPECT_EQ(by_name["shared_1"]["layer"], "c_2");
  EXPECT_EQ(by_name["shared_1"]["inputs"], (nlohmann::json{"out_2"}));
}

TEST_F(JobFile, AGroupsInputMayHaveNoNameOfItsOwn) {
  const Job job =
      read(layers("{ type = \"relu\" }, { repeat = 2, layers = ["
                  "{ type = \"relu\" },"
                  "{ type = \"addition\", inputs = [\"group_input\", \"input\"] } ] }"));
  const auto& all = (*job.network)["layers"];
  EXPECT_EQ(all[3]["inputs"].dump(), R"(["relu_1","input"])");
  EXPECT_EQ(all[5]["inputs"].dump(), R"(["addition_1","input"])");
}

TEST_F(JobFile, FoldersAreFoundBesideTheJobFileOrInLockstepData) {
  std::filesystem::create_directories(folder + "/images");
  std::filesystem::create_directories(folder + "/elsewhere/more");
  setenv("LOCKSTEP_DATA", (folder + "/elsewhere").c_str(), 1);
  EXPECT_EQ(read(with("builtin:digits", "images")).data.train[0], folder + "/images");
  EXPECT_EQ(read(with("builtin:digits", "more")).data.train[0], folder + "/elsewhere/more");
  EXPECT_EQ(read(with("builtin:digits", "none")).data.train[0], folder + "/none");
  EXPECT_EQ(read(with("builtin:digits", "/abs/./x")).data.train[0], "/abs/x");
  unsetenv("LOCKSTEP_DATA");
  EXPECT_EQ(read(with("builtin:digits", "more")).data.train[0], folder + "/more");
}

TEST_F(JobFile, DifferencesAreNamed) {
  const auto of = [&](const std::vector<std::string>& settings) {
    return job_difference(read(small, settings).resolved(), read(small).resolved()).what;
  };
  EXPECT_EQ(of({}), "");
  EXPECT_EQ(of({"max_epochs=5"}), "");
  EXPECT_EQ(of({"depth=1"}), "network.layers: 7 entries there, 5 here");
  EXPECT_EQ(of({"width=4"}), "network.layers[conv_1].filters: 11 there, 4 here");
  EXPECT_EQ(of({"reflect_x=true"}), "augmentation.reflect_x: false there, true here");
  EXPECT_EQ(of({"validation_frequency=7"}),
            "training.validation_frequency: \"epoch\" there, 7 here");
  for (const char* speed :
       {"threads=3", "loader_threads=2", "prefetch=9", "cache_mib=1", "name=x",
        "checkpoint_frequency=5", "checkpoints_kept=7", "verbose_frequency=3"}) {
    EXPECT_EQ(of({speed}), "") << speed;
  }
}

TEST(ExampleJobs, AreSound) {
  const std::string jobs = LOCKSTEP_SOURCE_FOLDER "/examples/jobs/";
  EXPECT_EQ(read_job(local_files(), jobs + "digits.toml").training.seed, 0);
  const Job text = read_job(local_files(), jobs + "text_gpt.toml", {"context=32"});
  EXPECT_EQ(text.data.window_length, 32);
  EXPECT_EQ(text.data.window_stride, 16);
  const Job s1 = read_job(local_files(), jobs + "cifar10_s1.toml");
  EXPECT_EQ((*s1.network)["layers"].size(), 42u);  // the loss is not a layer here
  EXPECT_EQ(s1.training.mini_batch_size, 256);
  for (const auto& [depth, width] : {std::pair{1, 16}, {2, 11}, {3, 9}, {4, 8}}) {
    const Job s3 =
        read_job(local_files(), jobs + "cifar10_s3.toml", {"depth=" + std::to_string(depth)});
    EXPECT_EQ((*s3.network)["layers"][1]["filters"], width);
    EXPECT_EQ((*s3.network)["layers"].size(), static_cast<size_t>(9 * depth + 6));
  }
}

}  // namespace
}  // namespace lockstep
