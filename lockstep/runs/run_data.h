// The data of a job: its folders and files, opened, split into parts and given the sizes that the
// network needs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct Job;  // jobs/job_file.h
struct JobData;

// The images of a job, split into parts. Examples of a network with several inputs have several
// (see open_inputs()).
struct RunData {
  DatastorePtr training;
  DatastorePtr validation, test;  // null if the job has none
  // Image to image: in the order of the images. Null if labels are learned.
  DatastorePtr training_targets, validation_targets, test_targets;
  bool random_crop = false;  // the trainer cuts training images at random positions
  // The trainer cuts regions of training images, and resizes them.
  std::optional<RandomResizedCrop> resized_crop = {};
  // Images that were left out by bad_images = "skip": unreadable, or without a readable target.
  // Each has the path of the unreadable file.
  std::vector<UnreadableImage> skipped;
  // What a user should know of the split, a sentence each.
  std::vector<std::string> notices;
  // Of the tables of the training data, for the network: those of open_run_data() if they are
  // known.
  TableColumns columns;
};

// "2 images cannot be read and are skipped: a/1.png, a/2.png"
std::string skipped_text(const std::vector<UnreadableImage>& skipped);

// Opens the inputs of a job and splits them by label with the job's seed: first validation, then
// test; the rest is training data. Labels of other folders are matched by name. If labels are
// learned, every folder of training images must contain images, and every class must keep a
// readable image. The columns of all tables are put into the order of `columns`, or if these are
// empty into that of the training data, by name. `stop` is as in readable_images(). Throws
// FileError, DataError, InvalidArgument (a class that is not in the training data, a part without
// images).
RunData open_run_data(const Job& job, const std::function<bool()>& stop = {},
                      const TableColumns& columns = {});

// The size that decoded images of a model need at least, if they are resized as its preparation
// says; none if that does not decode at other scales.
LeastSize least_decoded(const Preparation& preparation, const Network& network);

// How the data of a job are read, for its model. Throws InvalidArgument.
Preparation preparation_of(const Job& job);

// The notices of all parts (Datastore::notices()), each once.
std::vector<std::string> notices_of(const RunData& data);

// Whether open_run_data() keeps what it opened last, with the images that trainings read
// (keep_images()), for the next run of this process on the same data, as trials of a sweep are.
// Files that change meanwhile are not looked at again. At first off. Thread-safe.
void keep_run_data(bool keep);

// The network of a job, not initialized. Throws InvalidArgument.
Network build_network(const Job& job);

}  // namespace lockstep
