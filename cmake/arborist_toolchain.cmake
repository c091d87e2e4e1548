# Compiler settings and outside packages, in one place.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # no -DNDEBUG: Check() and assert stay on in every build
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # the sanitizer builds: line numbers, and half the compile time

# Exactness: the compiler may never fuse or reorder floating point on its own; fma is written where it is meant.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-ffp-contract=off;-fno-fast-math>")

if(ARBORIST_SANITIZER STREQUAL "address-undefined")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(ARBORIST_SANITIZER STREQUAL "thread")
  # protobuf's headers lay out maps differently under this macro, and the distribution's library is built without it:
  # every google.protobuf.Struct (JSON) and ErrorInfo would be read at wrong offsets. libstdc++ is told by its own name.
  add_compile_options(-fsanitize=thread -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  add_link_options(-fsanitize=thread)
elseif(ARBORIST_SANITIZER STREQUAL "fuzz")  # clang only; arborist_fuzz links libFuzzer's main
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(ARBORIST_SANITIZER)
  message(FATAL_ERROR "ARBORIST_SANITIZER=${ARBORIST_SANITIZER}, expected empty, address-undefined, thread or fuzz")
endif()

# Programs look for libraries beside themselves first, and so do those libraries (an rpath, not a runpath, is inherited): a
# bundle of deploy/bundle.sh runs from any folder.
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
add_link_options(-Wl,--disable-new-dtags)

find_program(ARBORIST_CCACHE ccache)
if(ARBORIST_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ARBORIST_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ARBORIST_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)  # module mode, before gRPC: Debian ships no protobuf-config.cmake
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)
