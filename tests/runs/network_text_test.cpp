#include "lockstep/runs/jobs/networks/network_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/engine/nn/architectures/architectures.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/jobs/networks/architecture_job.h"
#include "tests/runs/support.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::refusal;

class NetworkText : public testing::WithFolder {
 protected:
  nlohmann::ordered_json read_back(const std::string& job) {
    return *read_job(local_files(), write("job.toml", job)).network;
  }
  nlohmann::ordered_json read_back(const Network& network) {
    return read_back("[data]\ntrain = \"builtin:digits\"\n" + network_text(network));
  }
};

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(NetworkText, ArchitecturesReadBackAsTheSameNetwork) {
  for (const Architecture& a : architectures()) {
    SCOPED_TRACE(a.name);
    const std::string job = architecture_job(a.name, {{"classes", 7}});
    EXPECT_EQ(read_back(job), a.make({{"classes", 7}}).to_json());
    EXPECT_LT(lines_of(job), 160) << job;  // deep ones use groups
  }
  EXPECT_CONTAINS(architecture_job("lenet5", json::object()), "builtin:digits");
  EXPECT_CONTAINS(architecture_job("resnet20", json::object()), "repeat = 3");
  EXPECT_CONTAINS(refusal<InvalidArgument>([] { architecture_job("resnet2", json::object()); }),
                  "did you mean `resnet20`?");
}

TEST_F(NetworkText, OneLayerALine) {
  Network n;
  n.add(image_input({.height = 8, .width = 6, .channels = 1, .normalization = "none"}), "input");
  n.add(convolution2d({.filters = 4, .kernel = {3, 2}, .padding = {false, 1, 1, 2, 0}}), "first");
  n.add(relu());
  n.add(dropout({.probability = 0.25}));
  n.add(fully_connected({.units = 3}));
  n.add(softmax());
  EXPECT_EQ(network_text(n), R"toml([network]
input = { height = 8, width = 6, channels = 1, normalization = "none" }
layers = [
  { type = "convolution2d", filters = 4, kernel = [3, 2], padding = [1, 1, 2, 0], name = "first" },
  { type = "relu" },
  { type = "dropout", probability = 0.25 },
  { type = "fully_connected", units = 3 },
  { type = "softmax" },
]
loss = "cross_entropy"
)toml");
  EXPECT_EQ(read_back(n), n.to_json());
}

// Shared layers, names out of order, several inputs, and sequences that form no group.
TEST_F(NetworkText, OtherNetworksReadBackToo) {
  Network n;
  n.add(image_input({.height = 8, .width = 8, .channels = 2}));
  n.add(relu(), "relu_2");
  n.add(relu());
  n.add(relu());
  n.add(convolution2d({.filters = 2}), "c_1");
  n.add(relu(), "r_1", {"c_1"});
  n.add_shared("c_1", "c_2");
  n.add(relu(), "r_2", {"c_2"});
  n.add(addition(), {}, {"r_1", "r_2", "relu_2"});
  n.add(relu(), "c");  // would be a name of a group's layer if c_1, r_1, c_2, r_2 were a group
  n.add(reshape({.size = {4, 4, 8}}));
  n.add(reshape({.size = {128}}));
  n.add(fully_connected({.units = 4}), "output");
  n.set_loss("mean_squared_error");
  EXPECT_EQ(read_back(n), n.to_json());

  Network groups;
  groups.add(image_input({.height = 8, .width = 8, .channels = 2}));
  for (int i = 1; i <= 3; ++i) {
    const std::string number = "_" + std::to_string(i);
    groups.add(convolution2d({.filters = 2}), "c" + number);
    groups.add(relu(), "r" + number);
    groups.add(addition(), "s" + number, {"c" + number, "r" + number});
  }
  groups.add(relu(), "c");
  EXPECT_EQ(read_back(groups), groups.to_json());
}

}  // namespace
}  // namespace lockstep
