#include "lockstep/engine/formats/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/layers.h"

namespace lockstep {
namespace {

class ModelFile : public ::testing::Test {
 protected:
  ModelFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep_XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) folder = pattern;
    path = folder + "/m.safetensors";
  }
  ~ModelFile() override { std::filesystem::remove_all(folder); }

  static Network small() {
    Network network({image_input({.height = 6, .width = 5, .channels = 1, .normalization = "none"}),
                     convolution2d({.filters = 3, .kernel = {3, 3}, .padding = same_padding}),
                     batch_normalization(), relu(), fully_connected({.units = 2}), softmax()});
    network.initialize(7);
    return network;
  }

  // Saves a model after `change` and returns the message with which it is refused.
  std::string refusal(const std::function<void(SafetensorsFile&)>& change) {
    save_model(local_files(), path, small(), {"no", "yes"});
    SafetensorsFile file = read_safetensors(local_files().read(path), path);
    change(file);
    // Sets a matching digest, because other checks are tested.
    if (file.metadata.contains("lockstep.digest")) {
      file.metadata["lockstep.digest"] = model_digest(file);
    }
    write_atomically(local_files(), path, write_safetensors(file.tensors, file.metadata));
    try {
      load_model(local_files(), path);
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "the model was loaded";
    return "";
  }

  std::string folder, path;
};

TEST_F(ModelFile, KeepsHowATextWasReadAndItsVocabulary) {
  Network network(
      {token_input({.vocabulary = 3}), embedding({.vocabulary = 3, .units = 3}), softmax()});
  network.initialize(0);
  const std::vector<std::string> tokens{"<unknown>", "b", "\xC3\xA4"};
  network.set_columns({.inputs = {tokens}});
  const Preparation text{.tokens = "characters",
                         .window_length = 64,
                         .text_column = "body",
                         .label_column = "sta\"rs"};
  save_model(local_files(), path, network, tokens, text);
  const Model model = load_model(local_files(), path);
  EXPECT_EQ(model.preparation, text);
  EXPECT_EQ(model.network.columns().inputs.at(0), tokens);
  EXPECT_THROW(network.set_columns({.inputs = {{"a", "a", "b"}}}), InvalidArgument);
}

TEST_F(ModelFile, RemembersHowImagesWereRead) {
  const Network network = small();
  for (const Preparation& images : {Preparation{.resize = true},
                                    {.crop = true},
                                    {.crop = true, .resize_shorter = 256},
                                    {.resize = true, .scaled = true},
                                    {.upright = true}}) {
    save_model(local_files(), path, network, {}, images);
    EXPECT_EQ(load_model(local_files(), path).preparation, images);
  }
  for (const int64_t side : {int64_t{-1}, int64_t{1} << 15}) {
    save_model(local_files(), path, network, {}, {.crop = true, .resize_shorter = side});
    if (side < 0) {
      EXPECT_EQ(load_model(local_files(), path).preparation, Preparation{.crop = true});
    } else {
      EXPECT_THROW(load_model(local_files(), path), DataError);
    }
  }
}

TEST_F(ModelFile, LoadsWhatItSaved) {
  Network network = small();
  for (const NetworkState& state : network.state()) {
    for (int64_t i = 0; i < state.value.shape().elements(); ++i) {
      state.value.data<float>()[i] = 0.5f + static_cast<float>(i);
    }
  }
  save_model(local_files(), path, network, {"no", "yes"});
  Model model = load_model(local_files(), path);
  EXPECT_EQ(model.classes, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(model.network.to_json().dump(), network.to_json().dump());
  ASSERT_EQ(model.network.parameters().size(), network.parameters().size());
  for (const Parameter& l : network.parameters()) {
    EXPECT_EQ(model.network.parameter(l.name).to_vector(), l.value.to_vector()) << l.name;
  }
  for (const NetworkState& s : network.state()) {
    EXPECT_EQ(model.network.state_value(s.name).to_vector(), s.value.to_vector()) << s.name;
  }
  Tensor images = Tensor::zeros({2, 1, 6, 5});
  for (int64_t i = 0; i < 60; ++i) images.data<float>()[i] = static_cast<float>(i * i % 17);
  EXPECT_EQ(model.network.predict(images).to_vector(), network.predict(images).to_vector());
}

TEST_F(ModelFile, RefusesANetworkWithoutValues) {
  const Network network(
      {image_input({.height = 2, .width = 2, .channels = 1, .normalization = "none"}), relu()});
  EXPECT_THROW(save_model(local_files(), path, network, {}), InvalidArgument);
}

TEST_F(ModelFile, WhatDoesNotFitGivesDataErrorOnly) {
  using json = nlohmann::json;
  const auto with_network = [](const std::function<void(json&)>& change) {
    return [change](SafetensorsFile& file) {
      json network = json::parse(file.metadata.at("lockstep.network"));
      change(network);
      file.metadata["lockstep.network"] = network.dump();
    };
  };
  EXPECT_NE(refusal([](auto& f) { f.metadata.clear(); }).find("not a Lockstep model"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& f) { f.metadata["lockstep.format"] = "2"; }).find("format"),
            std::string::npos);
  refusal([](auto& f) { f.metadata.erase("lockstep.network"); });
  refusal([](auto& f) { f.metadata.erase("lockstep.classes"); });
  refusal([](auto& f) { f.metadata["lockstep.network"] = "{"; });
  refusal([](auto& f) { f.metadata["lockstep.network"] = std::string(100000, '['); });
  refusal([](auto& f) { f.metadata["lockstep.network"] = "[]"; });
  refusal([](auto& f) { f.metadata["lockstep.network"] = "{\"layers\":[]}"; });
  refusal([](auto& f) { f.metadata["lockstep.classes"] = "{}"; });
  refusal([](auto& f) { f.metadata["lockstep.classes"] = "[1,2]"; });
  // The names of tensors.
  EXPECT_NE(refusal([](auto& f) { f.tensors.pop_back(); }).find("is missing"), std::string::npos);
  EXPECT_NE(refusal([](auto& f) {
              f.tensors.push_back({"more", Tensor::scalar(1)});
            }).find("more"),
            std::string::npos);
  // Shapes and types.
  refusal([](auto& f) { f.tensors[0].tensor = Tensor::zeros({3, 1, 9}); });
  refusal([](auto& f) {
    f.tensors[0].tensor = Tensor::zeros(f.tensors[0].tensor.shape(), DType::i32);
  });
  // Descriptions that do not fit or claim more memory than exists.
  refusal(with_network([](json& n) { n["layers"][1]["type"] = "convolution3d"; }));
  refusal(with_network([](json& n) { n["layers"][1]["filters"] = 4; }));
  refusal(with_network([](json& n) { n["layers"][1]["filters"] = "2"; }));
  refusal(with_network([](json& n) { n["layers"][1]["filters"] = 1'000'000'000'000; }));
  refusal(with_network([](json& n) { n["layers"][0]["height"] = 1'000'000'000; }));
  refusal(with_network([](json& n) { n["layers"][1]["inputs"] = {"nowhere"}; }));
  refusal(with_network([](json& n) { n["layers"][1]["inputs"] = {"softmax_1"}; }));
  refusal(with_network([](json& n) { n["loss"] = 3; }));
}

TEST_F(ModelFile, NoFileGivesFileError) {
  EXPECT_THROW(load_model(local_files(), folder + "/none"), FileError);
}

TEST_F(ModelFile, ItsDigestCoversAllContents) {
  save_model(local_files(), path, small(), {"no", "yes"});
  EXPECT_EQ(load_model(local_files(), path).digest.size(), 32u);
  const SafetensorsFile sound = read_safetensors(local_files().read(path), path);
  const std::string digest = model_digest(sound);
  EXPECT_EQ(load_model(local_files(), path).digest, digest);
  const auto changed = [&](const std::function<void(SafetensorsFile&)>& change) {
    SafetensorsFile file = read_safetensors(local_files().read(path), path);
    change(file);
    return model_digest(file) != digest;
  };
  EXPECT_TRUE(changed([](auto& f) { f.tensors[0].tensor.template data<float>()[0] += 1; }));
  EXPECT_TRUE(changed([](auto& f) { f.tensors.back().name += "x"; }));
  EXPECT_TRUE(changed([](auto& f) { f.tensors.pop_back(); }));
  EXPECT_TRUE(changed([](auto& f) {
    f.tensors[0].tensor = f.tensors[0].tensor.reshaped({f.tensors[0].tensor.shape().elements()});
  }));
  EXPECT_TRUE(changed([](auto& f) { f.metadata["lockstep.classes"] = R"(["yes","no"])"; }));
  EXPECT_TRUE(changed([](auto& f) { f.metadata["more"] = ""; }));
  EXPECT_FALSE(changed([](auto& f) { f.metadata["lockstep.digest"] = "another"; }));
  EXPECT_FALSE(changed([](auto& f) { std::reverse(f.tensors.begin(), f.tensors.end()); }));
}

TEST_F(ModelFile, EveryFlippedBitIsRefusedOrReadsTheSame) {
  save_model(local_files(), path, small(), {"no", "yes"});
  const std::vector<std::byte> sound = local_files().read(path);
  const std::string digest = load_model(local_files(), path).digest;
  int refused = 0;
  for (size_t at = 0; at < sound.size(); ++at) {
    std::vector<std::byte> damaged = sound;
    damaged[at] ^= std::byte{1} << (at % 8);
    try {
      const Model model = decode_model(damaged, "bad");
      EXPECT_EQ(model.digest, digest) << "byte " << at;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("bad"), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_EQ(refused, static_cast<int>(sound.size()));
}

TEST_F(ModelFile, ADigestUnderADamagedNameIsNotAMissingOne) {
  for (const char* key : {"lockstep.digesT", "mockstep.digest", ""}) {
    EXPECT_NE(refusal([&](auto& f) {
                f.metadata[key] = f.metadata.at("lockstep.digest");
                f.metadata.erase("lockstep.digest");
              }).find("does not know"),
              std::string::npos);
  }
}

TEST_F(ModelFile, OneWithoutADigestIsReadWithANotice) {
  save_model(local_files(), path, small(), {"no", "yes"});
  SafetensorsFile file = read_safetensors(local_files().read(path), path);
  file.metadata.erase("lockstep.digest");
  file.metadata["format"] = "pt";  // as other programs write it
  write_atomically(local_files(), path, write_safetensors(file.tensors, file.metadata));
  EXPECT_EQ(load_model(local_files(), path).digest, "");
  EXPECT_NE(no_digest_text(path).find(path), std::string::npos);
}

TEST_F(ModelFile, ValuesThatAreNotFiniteNumbersAreNamed) {
  for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    Network network = small();
    EXPECT_NO_THROW(require_finite(network, path));
    const NetworkState& last = network.state().back();
    last.value.data<float>()[1] = value;
    save_model(local_files(), path, network, {"no", "yes"});
    const Model model = load_model(local_files(), path);  // may be inspected
    try {
      require_finite(model.network, path);
      ADD_FAILURE() << "nothing was found";
    } catch (const DataError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(path), std::string::npos);
      EXPECT_NE(what.find("tensor " + last.name + " has 1 of 3 values"), std::string::npos) << what;
    }
  }
}

}  // namespace
}  // namespace lockstep
