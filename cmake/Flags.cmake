# Compiler flags of Lockstep's own targets.

if(LOCKSTEP_SANITIZE)
  # For everything linked, so that the run-time library is there. No NDEBUG: assertions stay.
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  if(LOCKSTEP_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

function(lockstep_set_flags target)
  target_compile_options(
    ${target}
    PRIVATE # Contraction would let the compiler, not the source, choose how sums round.
            -ffp-contract=off
            # The build id shall not depend on where the source lies.
            -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.
            -Wall
            -Wextra
            -Wshadow
            -Wconversion
            -Wno-sign-conversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms of GCC 12 inside its own std::string and std::vector (its bugs 105329, 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-free-nonheap-object)
  endif()
  if(LOCKSTEP_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
