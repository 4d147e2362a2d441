// The classes of label images in [data] of a job: pixel_classes and ignored_value.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "lockstep/base/fields.h"

namespace lockstep {

struct JobData;  // job_file.h

// Moves both keys from the table [data] to the job's data. Throws InvalidArgument, naming the key,
// for other values than names, or numbers and colors by name, and as PixelClasses::check().
void take_pixel_classes(nlohmann::json& table, JobData& data);
// Adds them to the table, if there are classes.
void put_pixel_classes(const JobData& data, nlohmann::ordered_json& table);
// For documentation.
std::vector<FieldInfo> pixel_class_fields();
// Throws InvalidArgument for classes of pixels where the data cannot have label images.
void check_pixel_classes(const JobData& data);

}  // namespace lockstep
