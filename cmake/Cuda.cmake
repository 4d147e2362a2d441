# The GPUs' kernels: a shared library of its own, lockstep_cuda, which the executable loads when a GPU
# is asked for. Nothing else is linked with CUDA.

# A quarter of the build's time, so AUTO builds it where it can be used: on a machine with a GPU, and
# where CUDAARCHS names the GPUs to build for.
set(lockstep_gpu_found OFF)
foreach(sign IN ITEMS /proc/driver/nvidia /dev/nvidiactl /dev/dxg) # the last: in Windows' subsystem
  if(EXISTS "${sign}")
    set(lockstep_gpu_found ON)
  endif()
endforeach()

set(lockstep_cuda_missing "")
if(LOCKSTEP_CUDA STREQUAL "OFF")
  set(lockstep_cuda_missing "LOCKSTEP_CUDA is OFF")
elseif(LOCKSTEP_CUDA STREQUAL "AUTO" AND NOT lockstep_gpu_found AND NOT DEFINED ENV{CUDAARCHS}
       AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(lockstep_cuda_missing "this machine has no GPU (-DLOCKSTEP_CUDA=ON builds it all the same)")
elseif(LOCKSTEP_SANITIZE)
  set(lockstep_cuda_missing "sanitizers do not look into GPU code")
else()
  find_program(LOCKSTEP_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(LOCKSTEP_NVCC)
  if(LOCKSTEP_NVCC)
    file(REAL_PATH "${LOCKSTEP_NVCC}" nvcc)
    cmake_path(GET nvcc PARENT_PATH folder)
    cmake_path(GET folder PARENT_PATH toolkit)
    find_path(LOCKSTEP_CUDNN_INCLUDE_DIR cudnn.h HINTS "${toolkit}/include")
    mark_as_advanced(LOCKSTEP_CUDNN_INCLUDE_DIR)
    foreach(name IN ITEMS cudnn cublasLt)
      find_library(LOCKSTEP_${name}_LIBRARY ${name} HINTS "${toolkit}/lib64" "${toolkit}/lib")
      mark_as_advanced(LOCKSTEP_${name}_LIBRARY)
      if(NOT LOCKSTEP_${name}_LIBRARY)
        string(APPEND lockstep_cuda_missing "lib${name} is missing ")
      endif()
    endforeach()
    if(NOT LOCKSTEP_CUDNN_INCLUDE_DIR)
      string(APPEND lockstep_cuda_missing "cudnn.h is missing")
    endif()
  else()
    set(lockstep_cuda_missing "nvcc is missing")
  endif()
endif()
# Machine code for the A100 and the H100 and their like; later GPUs compile the last one's
# intermediate code when they load it. CUDAARCHS in the environment names others (see CMake).
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual CACHE STRING "GPUs to build for")
endif()
if(NOT lockstep_cuda_missing)
  if(NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} "${LOCKSTEP_NVCC}")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(lockstep_cuda_missing "nvcc does not work with this compiler")
  endif()
endif()
if(lockstep_cuda_missing)
  if(LOCKSTEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LOCKSTEP_CUDA is ON, but ${lockstep_cuda_missing}")
  endif()
  message(STATUS "The GPUs' library is left out: ${lockstep_cuda_missing}")
  return()
endif()

enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
find_package(CUDAToolkit REQUIRED)

# Groups of GPUs are left out where NCCL's header is missing; its library is loaded when it is used.
find_path(LOCKSTEP_NCCL_INCLUDE_DIR nccl.h HINTS "${toolkit}/include")
mark_as_advanced(LOCKSTEP_NCCL_INCLUDE_DIR)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/lockstep/engine/kernels/cuda/*.cpp"
     "${PROJECT_SOURCE_DIR}/lockstep/engine/kernels/cuda/*.cu")
if(LOCKSTEP_NCCL_INCLUDE_DIR)
  list(FILTER sources EXCLUDE REGEX "/no_nccl\\.cpp$")
else()
  message(STATUS "GPUs of several processes exchange through the hosts: nccl.h is missing")
  list(FILTER sources EXCLUDE REGEX "/nccl\\.cpp$")
endif()
# What it needs of the rest is compiled in once more: it is loaded by executables of any kind.
foreach(source IN ITEMS base/os/build_id base/numeric/dtype base/numeric/shape engine/device/device_log engine/tensor/spec engine/kernels/backends/backend)
  list(APPEND sources "${PROJECT_SOURCE_DIR}/lockstep/${source}.cpp")
endforeach()
add_library(lockstep_cuda SHARED ${sources})
set_target_properties(
  lockstep_cuda
  PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
             CXX_VISIBILITY_PRESET hidden
             CUDA_VISIBILITY_PRESET hidden
             VISIBILITY_INLINES_HIDDEN ON
             CUDA_STANDARD 20
             CUDA_EXTENSIONS OFF
             CUDA_RUNTIME_LIBRARY None # linked below, statically
             LINKER_LANGUAGE CXX
             INSTALL_RPATH "$ORIGIN"
             INSTALL_RPATH_USE_LINK_PATH ON)
target_compile_features(lockstep_cuda PRIVATE cxx_std_20)
target_include_directories(lockstep_cuda PRIVATE "${PROJECT_SOURCE_DIR}")
target_include_directories(lockstep_cuda SYSTEM PRIVATE "${LOCKSTEP_CUDNN_INCLUDE_DIR}")
if(LOCKSTEP_NCCL_INCLUDE_DIR)
  target_include_directories(lockstep_cuda SYSTEM PRIVATE "${LOCKSTEP_NCCL_INCLUDE_DIR}")
endif()
list(JOIN CMAKE_CUDA_ARCHITECTURES "," architectures)
target_compile_definitions(
  lockstep_cuda PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}"
                        LOCKSTEP_CUDA_ARCHITECTURES="${architectures}")
target_link_libraries(
  lockstep_cuda PRIVATE CUDA::cudart_static ${LOCKSTEP_cudnn_LIBRARY} ${LOCKSTEP_cublasLt_LIBRARY}
                        Threads::Threads)
target_link_options(lockstep_cuda PRIVATE LINKER:--no-undefined LINKER:--exclude-libs,ALL
                    LINKER:--build-id=sha1)
lockstep_set_flags(lockstep_cuda)

target_compile_definitions(lockstep PRIVATE LOCKSTEP_WITH_CUDA=1)
