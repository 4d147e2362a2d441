// The data of a training, and the normalization of the network's input from it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/batches/statistics.h"
#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

class Shard;  // train/programs/shard.h

// Returns one f32 value for each row of the shard: its loss.
using ShardLoss = std::function<Tensor(Shard&)>;

// A loss of the user in place of the network's. In training and validation alike shard[0] has the
// inputs (u8 images, f32 arrays), shard[1] the labels (i32) or the targets (f32), and
// shard.forward(shard[0]) the network's outputs. With k inputs, shard[0] to shard[k - 1] have them
// and shard[k] the labels or targets. Several threads call it at once.
//
// Sequences are rows x steps x ..., with room for the longest of the shard and zeros after the ends
// of the others; shard.lengths(i) has the valid steps of each row of shard[i].
// shard.forward(shard[0]) knows them.
struct TrainingLoss {
  ShardLoss function = {};  // empty: the network's loss
  // Names the loss in checkpoints and receipts: a training resumes only with a loss of its name.
  std::string name = {};
  // Of sequences: the function returns a value for each step (rows x steps). Those after the ends
  // do not count, and the loss is the mean over the valid steps of the whole mini-batch (of the
  // targets where these are sequences, else of the first input that is one). Else it returns one
  // for each row, and the loss is the mean over the rows.
  bool by_step = false;

  explicit operator bool() const { return static_cast<bool>(function); }
};

struct TrainingData {
  // Examples of a network with several inputs have as many; see combine().
  DatastorePtr training;
  DatastorePtr validation = {};    // null: no validation
  Augmentation augmentation = {};  // for training images and sequences only
  // The desired outputs, images or arrays, in the order of the examples. May be the same datastores
  // as the inputs. Null: the network learns the targets of the examples, if they have some (see
  // with_targets()), or their labels.
  DatastorePtr training_targets = {}, validation_targets = {};
  InputNoise noise = {};  // on inputs, never on targets
  // Training images (and their targets) may be larger than the network's input. A window of the
  // input's size is cut at a random position that changes every epoch. Validation images are not
  // cut at random.
  bool random_crop = false;
  // A loss of the user. Then the network may have any number of outputs, and there is no training
  // accuracy.
  TrainingLoss loss = {};
  // Training images (and their targets) may have any size. A region of each one is drawn again in
  // every epoch, and resized to the network's input. Not with random_crop.
  std::optional<RandomResizedCrop> resized_crop = {};
  // A function of the user that changes training images, and targets that are images, after
  // `augmentation`; see MiniBatchQueueOptions::own_augmentation.
  OwnAugmentation own_augmentation = {};
};

// The same examples with the columns of tables in the order in which the network learned them
// (Network::columns()), by name: `data` itself if nothing changes. Columns without names stay in
// their order, and so do all columns if those of the network have no names. notices() of the result
// says what was done. train(), evaluate() and predict() call it. Call it for the datastores of your
// own loops. Throws InvalidArgument, naming the columns that are missing or that the network did
// not learn. Thread-safe.
DatastorePtr match_columns(const Network& network, DatastorePtr data);

// The names of the columns of training data, for Network::set_columns(). train() sets them if the
// network has none; own loops call network.set_columns(columns_of(network, *data)). Thread-safe.
TableColumns columns_of(const Network& network, const Datastore& data,
                        const DatastorePtr& targets = {});

// A network (initialized or not) and its data. Each worker process builds its training problem by
// calling the same function, which must return the same problem for the same arguments. Names and
// labels of the data are compared.
struct TrainingProblem {
  Network network;
  TrainingData data;
};

// Sets the state (offset, factor) of the network's inputs from the statistics of each channel
// (feature) of the training data without augmentation; see ImageInputOptions. A constant channel
// becomes 0. The first form has an entry for each input layer; the others are for all inputs.
// Throws InvalidArgument for other numbers of inputs or channels, and for values beyond f32.
void set_input_normalization(Network& network,
                             const std::vector<std::vector<ChannelSummary>>& inputs);
void set_input_normalization(Network& network, const std::vector<ChannelSummary>& channels);
void set_input_normalization(Network& network, const ChannelStatistics& statistics);

// The same for targets: sets the state (offset, scale) of the denormalization() layer that ends the
// network, unless its `normalization` is "none" or "kept". A constant channel keeps the scale 1; so
// do those of outputs() whose loss names a cross-entropy or kl_div, with the offset 0.
// Does nothing without such a layer.
void set_target_scaling(Network& network, const std::vector<ChannelSummary>& channels);

}  // namespace lockstep
