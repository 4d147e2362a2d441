// Configurations of clusters in the cloud, printed by the subcommand cluster.
#pragma once

#include <string>

#include "apps/lockstep/command_line.h"
#include "lockstep/cluster/clouds/aws_config.h"
#include "lockstep/cluster/clouds/job_set.h"

namespace lockstep::command {

struct CloudArguments {
  AwsClusterOptions aws;
  JobSetOptions job_set;
};

inline constexpr const char* cloud_actions[] = {"aws-config", "jobset"};

// Prints what the action asks for. `name`: of the cluster or the JobSet; "": the default. False,
// without any effect, for another action than those above. Throws InvalidArgument for wrong
// options.
bool act_on_cloud(const std::string& action, const std::string& name, const CloudArguments& a);

// The options of these actions.
void add_cloud_options(Subcommand& sub, CloudArguments& a);

}  // namespace lockstep::command
