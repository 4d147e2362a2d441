// The texts of a job.
#pragma once

#include "lockstep/runs/run_data.h"

namespace lockstep {

// The parts of a text, or of texts with classes. Throw what the functions of
// sources/text_source.h throw, and InvalidArgument for keys of [data] that are not for texts and
// for parts without tokens or texts.
RunData open_text_data(const Job& job, const TableColumns& columns);
RunData open_labeled_texts(const Job& job, const TableColumns& columns);

}  // namespace lockstep
