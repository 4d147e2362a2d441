// [data] category_encoding = "embedding": layers of networks of jobs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct JobData;  // jobs/job_file.h

// A network (Network::to_json()) with a category_embedding after each input whose columns have
// categories, which the layers read that read the input. Columns of categories are those of
// data.categories in `columns`. A network that has these layers, such as that of a model, stays as
// it is. Throws InvalidArgument if they are for other categories. Thread-safe.
nlohmann::ordered_json with_category_layers(const nlohmann::ordered_json& network,
                                            const JobData& data, const TableColumns& columns);

}  // namespace lockstep
