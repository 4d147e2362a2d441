// A contact sheet of a job's training images, as the network gets them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/images/image.h"

namespace lockstep {

struct Job;  // jobs/job_file.h

struct PreviewOptions {
  int64_t rows = 8, columns = 1;  // images below each other, and next to each other
  int64_t epochs = 4;             // of each image: how often it is drawn
};

struct Preview {
  struct Entry {
    std::string file;   // as Datastore::name()
    std::string label;  // its class; "" if the network does not learn classes
  };
  // Each image without random changes, and to its right as the epochs from the first one on draw
  // it. Small images are enlarged by a whole factor.
  Image sheet;
  std::vector<Entry> images;  // row by row: the first ones of the first epoch
};

// Reads the images, and crops, resizes and augments them as a training of the job would. Of a
// network with several inputs the first one that is an image is shown; of targets only label images
// are, in half of the color of each pixel. Throws InvalidArgument if no input is an image, for
// sizes below 1 (`epochs` below 0) and for a sheet of more than max_image_side pixels, and what
// open_run_data() throws. Thread-safe.
Preview preview_of(const Job& job, const PreviewOptions& options);

}  // namespace lockstep
