# The CUDA backend. AUTO builds it where an nvcc is found, ON requires one, OFF never looks for it. After this file
# ARBORIST_HAS_CUDA says which sources are built; no source asks.
set(ARBORIST_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF or AUTO")
set(ARBORIST_CUDA_ARCHITECTURES "80-real;90a-real;120-real" CACHE STRING "GPU architectures to compile for")
if(NOT ARBORIST_CUDA MATCHES "^(ON|OFF|AUTO)$")
  message(FATAL_ERROR "ARBORIST_CUDA=${ARBORIST_CUDA}, expected ON, OFF or AUTO")
endif()

set(ARBORIST_HAS_CUDA OFF)
if(ARBORIST_CUDA STREQUAL AUTO)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(ARBORIST_HAS_CUDA ON)
  endif()
elseif(ARBORIST_CUDA STREQUAL ON)
  set(ARBORIST_HAS_CUDA ON)
endif()

if(ARBORIST_HAS_CUDA)
  # Whether kernels overlap is decided by the GPU at run time and by the architecture when compiling; PTX of an older one
  # that a newer GPU compiles for itself would have the launches without the waits.
  foreach(architecture IN LISTS ARBORIST_CUDA_ARCHITECTURES)
    if(NOT architecture MATCHES "^[0-9]+[af]?-real$")
      message(FATAL_ERROR "ARBORIST_CUDA_ARCHITECTURES has ${architecture}, expected entries like 90a-real")
    endif()
  endforeach()
  set(CMAKE_CUDA_ARCHITECTURES ${ARBORIST_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know nvcc's C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # As on the CPU: fma is written where it is meant. Host code in .cu files is compiled like the rest.
  string(APPEND CMAKE_CUDA_FLAGS " --fmad=false --expt-relaxed-constexpr -lineinfo -Werror=all-warnings"
    " -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-ffp-contract=off")
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
  set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2")
  find_package(CUDAToolkit REQUIRED)
endif()
message(STATUS "CUDA backend: ${ARBORIST_HAS_CUDA}")

# arborist_cuda_sources(target a_cuda.cu ...): the CUDA column of a room; nothing without CUDA.
function(arborist_cuda_sources target)
  if(ARBORIST_HAS_CUDA)
    target_sources(${target} PRIVATE ${ARGN})
    target_link_libraries(${target} PUBLIC arborist_device CUDA::cudart_static)
  endif()
endfunction()

# arborist_cuda_test(name SOURCES ... LINK ...): a GoogleTest binary that needs a GPU; without one it skips and says so.
function(arborist_cuda_test name)
  if(ARBORIST_HAS_CUDA)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
    arborist_test(${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK} arborist_cuda_testing)
    set_tests_properties(${name} PROPERTIES LABELS "quick;gpu")
    set_property(GLOBAL APPEND PROPERTY ARBORIST_CUDA_TESTS ${name})
  endif()
endfunction()

# arborist_cuda_bench(name SOURCES ... LINK ...): prints figure, floor and ratio on a GPU; never part of ctest.
function(arborist_cuda_bench name)
  if(ARBORIST_HAS_CUDA)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
    arborist_bench(${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK} arborist_cuda_bench_support)
    set_property(GLOBAL APPEND PROPERTY ARBORIST_CUDA_BENCHES ${name})
  endif()
endfunction()
