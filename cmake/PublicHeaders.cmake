# What is public: the headers that lockstep/lockstep.h reaches. They alone are installed, and the
# API reference is made from them.
cmake_policy(VERSION 3.25) # scripts include this, too

# Sets `result` to their paths, relative to the folder `root` of the sources, sorted.
function(lockstep_public_headers root result)
  set(waiting lockstep/lockstep.h)
  set(found "")
  while(waiting)
    list(POP_FRONT waiting header)
    if(header IN_LIST found)
      continue()
    endif()
    list(APPEND found "${header}")
    file(STRINGS "${root}/${header}" lines REGEX "^#include \"lockstep/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" header "${line}")
      list(APPEND waiting "${header}")
    endforeach()
  endwhile()
  list(SORT found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()
