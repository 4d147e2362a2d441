# Runs each test of COMMAND that FILTER names (GoogleTest) alone, and succeeds when every one of
# them fails because two results differ. A crash, or an executable that does not start, is not such a
# failure. The order in which threads come is chance: a test that has passed is run again, RUNS
# times in all.
set(RUNS 20)
# What is compared where results are: no other expectation counts.
set(difference
    "Expected equality of these values:\n  [^\n]*(digest|losses|receipt|gradients|trained)")

execute_process(
  COMMAND "${COMMAND}" "--gtest_filter=${FILTER}" --gtest_list_tests
  OUTPUT_VARIABLE listed
  RESULT_VARIABLE result)
if(NOT result STREQUAL "0")
  message(FATAL_ERROR "The tests cannot be listed (result: ${result})")
endif()
string(REPLACE "\n" ";" lines "${listed}")
set(tests "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([A-Za-z0-9_/]+)\\.")
    set(suite "${CMAKE_MATCH_1}")
  elseif(line MATCHES "^  ([A-Za-z0-9_/]+)")
    list(APPEND tests "${suite}.${CMAKE_MATCH_1}")
  endif()
endforeach()
if(NOT tests)
  message(FATAL_ERROR "There are no tests `${FILTER}`")
endif()

set(vacuous "")
foreach(test IN LISTS tests)
  set(outcome "passes")
  foreach(run RANGE 1 ${RUNS})
    set(runs ${run})
    execute_process(
      COMMAND "${COMMAND}" "--gtest_filter=${test}"
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output
      RESULT_VARIABLE result)
    if(output MATCHES "\\[  SKIPPED \\] ${test}")
      set(outcome "is left out on this machine")
      break()
    elseif(result STREQUAL "1" AND output MATCHES "\\[  FAILED  \\] ${test}")
      if(output MATCHES "${difference}")
        set(outcome "fails, as it has to")
        break()
      endif()
      set(outcome "fails, but not because results differ")
    elseif(NOT result STREQUAL "0")
      set(outcome "ends otherwise (result: ${result})")
      break()
    endif()
  endforeach()
  message(STATUS "${test}: ${outcome} (run ${runs})")
  if(NOT outcome MATCHES "as it has to|left out")
    message(STATUS "${output}")
    list(APPEND vacuous "${test} ${outcome}")
  endif()
endforeach()
if(vacuous)
  list(JOIN vacuous "\n  " text)
  message(FATAL_ERROR "These tests had to fail because results differ:\n  ${text}")
endif()
