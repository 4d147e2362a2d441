# The target api_reference: HTML pages about the public headers, made by Doxygen, in
# ${PROJECT_BINARY_DIR}/api/html. A warning of Doxygen is an error.

set(api_reference_command
    "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DFOLDER=${PROJECT_BINARY_DIR}/api"
    "-DVERSION=${PROJECT_VERSION}" -P "${PROJECT_SOURCE_DIR}/docs/api/make.cmake")
add_custom_target(
  api_reference
  COMMAND ${api_reference_command}
  COMMENT "Making the API reference"
  VERBATIM)
