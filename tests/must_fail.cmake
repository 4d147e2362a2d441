# Runs SUITE of COMMAND, tests of GoogleTest, and succeeds when one of them failed. A crash, or an executable
# that does not start, is not the failure looked for.
execute_process(
  COMMAND "${COMMAND}" "--gtest_filter=${SUITE}.*"
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output
  RESULT_VARIABLE result)
message(STATUS "${output}")
if(NOT result STREQUAL "1" OR NOT output MATCHES "FAILED TEST")
  message(FATAL_ERROR "The tests had to fail and did not (result: ${result})")
endif()
