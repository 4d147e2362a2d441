// All that a job file may hold, as Markdown.
#pragma once

#include <string>
#include <vector>

namespace lockstep::command {

// The whole page, docs/job-file.md. Made from the descriptions that job files are read by.
std::string reference_page();
// The part about one table ("training") or one layer ("relu").
std::string reference_of(const std::string& topic);
// The names that reference_of() knows.
std::vector<std::string> reference_topics();

}  // namespace lockstep::command
